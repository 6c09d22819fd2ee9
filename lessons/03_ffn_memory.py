# %% [markdown]
# # 3 The FFN as a key-value memory
#
# *Attention moves, the FFN computes.*
#
# An encoder block has two sub-layers. Attention carries information from one token to another. The
# *feed-forward network*, FFN for short, is the other one. It looks at one token at a time, and in most models
# it holds most of the numbers of the block.
#
# **After this lesson you can**
#
# - write the FFN, and say what each of its four arrays does;
# - say where the numbers and the arithmetic of a block are, and when "two thirds" is true;
# - read the same four arrays as a memory: keys, thresholds, values;
# - write a fact into that memory by hand, change it, and overload it until it fails;
# - show why the ReLU is needed, and why an average can never do what an FFN does.
#
# **It builds on** matrix products. Where a number comes from lesson 2 (a layer-normed token), it is given. No earlier code has to be pasted.
#
# **How long.** The core exercises take 60 to 90 minutes with the reading. Stretch exercises may be skipped: no core exercise needs them.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import check, data, figures, hint, own, quiz

figures.style()

# %% overview

# %% [markdown]
# ## 1. Attention moves, the FFN computes
#
# In attention, a token *receives*: its new vector is a weighted average of vectors made from all
# tokens. The FFN asks nobody. It takes the vector of one token and computes a new one from it.
#
# $$\mathrm{FFN}(x) = \mathrm{ReLU}(x W_1 + b_1)\, W_2 + b_2, \qquad \mathrm{ReLU}(z) = \max(0, z)$$
#
# In words: *multiply the token by the first matrix and add the first bias; replace every negative
# number by zero; multiply by the second matrix and add the second bias.*
#
# The first matrix makes the token wider, from `d_model` to `d_ff` numbers (512 to 2048 in the
# original paper). These are the *hidden units*. A unit whose number is positive *fires*. One whose
# number was replaced by zero is *silent*. The second matrix goes back to `d_model`.
#
# **By hand.** The smallest example of this lesson has two features and three hidden units:
#
# $$x = (1, 2), \quad W_1 = \begin{pmatrix} 1 & 0 & -1 \\ 0 & 1 & 1 \end{pmatrix}, \quad b_1 = (0, -3, 0), \quad
# W_2 = \begin{pmatrix} 1 & 0 \\ 0 & 1 \\ 1 & 1 \end{pmatrix}, \quad b_2 = (0, 0)$$
#
# 1. $x W_1 = (1, 2, 1)$: the third entry is $1 \cdot (-1) + 2 \cdot 1$.
# 2. Add $b_1$: $(1, -1, 1)$.
# 3. The ReLU replaces the $-1$: $(1, 0, 1)$. Units 0 and 2 fire, unit 1 is silent.
# 4. Multiply by $W_2$: $1 \cdot (1, 0) + 0 \cdot (0, 1) + 1 \cdot (1, 1) = (2, 1)$.
#
# We call it the *tiny FFN* from now on.
#
# The picture shows step 3 for 12 random tokens and 24 hidden units. Each row is a token. On the
# right, every negative number has turned grey: it is zero, and the second matrix never sees it.

# %% explore="hidden_matrix"
hidden = data("hidden_matrix")
fig, axes = plt.subplots(1, 2, figsize=(9.5, 3.4), sharey=True)
colours = plt.get_cmap("PuOr").copy()
colours.set_bad("0.82")
for ax, name in zip(axes, ("before", "after")):
    numbers = np.ma.masked_equal(hidden[name], 0)
    image = ax.imshow(numbers, cmap=colours, vmin=-3, vmax=3, aspect="auto")
    ax.set(title=f"{name} the ReLU", xlabel="hidden unit")
    ax.grid(False)
axes[0].set_ylabel("token")
fig.colorbar(image, ax=axes, label="number in the hidden layer")
share = f"{hidden['silent']:.0%}"
figures.describe(
    fig,
    f"Two heat maps of the hidden layer, 12 tokens by 24 units: before the ReLU both signs occur, "
    f"after it the {share} that were negative are grey, that is zero.",
)

# %% [markdown]
# Three things to keep apart:
#
# - **Where it stands.** In a post-norm block the FFN reads what the first layer norm gives, and its
#   result is added to that: `LayerNorm(y + FFN(y))`. In a pre-norm block it reads a normed copy, and
#   its result is added to the stream. Both times the FFN returns a *change*; the addition is the
#   block's business. This lesson writes the change.
# - **The order.** Attention first, FFN second is a choice that works. Other orders work too, and in
#   some models the two sub-layers run side by side.
# - **Not linear.** The ReLU is not the only step of a block that is not linear. The softmax of
#   attention and the layer norm are not linear either.
#
# A token in a batch is one row of `d_model` numbers at the end of an array of any shape. Before you
# write the function: which rows use the same weights?

# %% [markdown] quiz="shared_weights"
# **Predict.** The input has shape (32, 100, 512): 32 sentences of 100 tokens. The encoder has 6
# layers. Who shares one set of FFN weights?
#
# - [ ] the 100 tokens of a sentence, but each sentence has its own :: Weights are learned once and then used for every sentence. A sentence brings no weights with it.
# - [x] all tokens of all sentences, but each layer has its own :: Right. One layer uses the same four arrays on all 3200 tokens. The next layer has four other arrays.
# - [ ] all tokens, all sentences and all layers :: Tokens and sentences, yes. But the 6 layers have 6 sets of FFN weights, and each may compute something else.
# - [ ] nobody: every token position has its own :: Then a model could not read a sentence that is longer than those it was trained on. The FFN does not know at which position it works.

# %% exercise="ffn"

# %% [markdown]
# ## 2. What an average cannot do
#
# Why is attention not enough? One attention head returns, for each token, a weighted average of its
# value vectors. The weights are positive and sum to 1. Such an average can never leave the
# *convex hull* of these vectors: the smallest region without dents that holds them all. For three
# vectors in the plane that is a triangle.
#
# By hand: the average of the numbers 2, 5 and 9, with any positive weights that sum to 1, lies
# between 2 and 9. No choice of weights gives 10. In the plane it is the same in every direction.
#
# The FFN has no such fence. Below, the dots are 150 averages of three value vectors. The crosses
# are what an FFN with 8 hidden units and random weights makes of the same points.

# %% explore="convex_hull"
hull = data("convex_hull")
corners = hull["values"]
fig, ax = plt.subplots(figsize=(6, 4.4))
ax.fill(*corners.T, color=figures.SKY, alpha=0.2, label="convex hull of three values")
ax.scatter(*hull["averages"].T, s=14, color=figures.BLUE, label="averages of the three (one head)")
ax.scatter(*hull["after"].T, s=18, marker="x", color=figures.ORANGE, label="an FFN of each average")
ax.scatter(*corners.T, s=60, marker="^", color="black", label="the three value vectors")
ax.set(xlabel="feature 0", ylabel="feature 1", aspect="equal")
ax.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
figures.describe(
    fig,
    "Three value vectors span a triangle; all averages lie inside it, while many outputs of the FFN lie outside.",
)

# %% [markdown]
# What holds exactly, and what does not:
#
# - It holds for *one head* and for its value vectors, $x W_V$. The heads together, after $W_O$, can
#   reach more. So can the residual, which adds instead of averaging.
# - With fixed attention weights the average is linear in the value vectors. Two rounds of one head, with
#   fixed attention weights and without a residual, are one round.
#
# Averaging again and again makes tokens alike. The next figure measures it on random weights
# (12 tokens, `d_model` 64, 8 heads): the share of the stream in which the tokens *differ*. With
# attention alone it falls from 0.96 to 0.65, then 0.023, then less than one millionth, in three
# rounds. A residual and a layer norm (post-norm) slow this down greatly: 0.70 after three rounds,
# 0.06 after twelve. Other random weights give other numbers. The shape stays.

# %% explore="rank_collapse"
collapsed = data("rank_collapse")
fig, ax = plt.subplots()
ax.semilogy(collapsed["with_skip_and_norm"], "o-", label="residual and layer norm (post-norm)")
ax.semilogy(collapsed["alone"], "s--", label="attention alone")
ax.set(xlabel="rounds of attention", ylabel="share in which tokens differ", ylim=(1e-7, 2))
ax.legend()
figures.describe(
    fig,
    "On a logarithmic axis the difference between tokens falls below one millionth in three rounds of attention "
    "alone, and slowly to 6 percent over twelve rounds with a residual and a norm.",
)

# %% [markdown]
# ## 3. Where the numbers of a block are
#
# Count what is learned in one encoder block.
#
# - **Attention** has four square matrices, $W_Q, W_K, W_V, W_O$, each `d_model` by `d_model`. With
#   biases, each has `d_model` numbers more. The number of heads does not matter: heads are slices.
# - **The FFN** has two matrices, `d_model` by `d_ff` and `d_ff` by `d_model`. Their biases are as long
#   as their outputs.
# - **The norms** are two, each with a gamma and a beta of `d_model` numbers.
#
# Without biases and norms:
#
# $$\text{attention} = 4\, d_{model}^2, \qquad \text{FFN} = 2\, d_{model}\, d_{ff}$$
#
# In words: *four squares; and two rectangles, as wide as the hidden layer.*
#
# **By hand.** For `d_model` = 9 and `d_ff` = 36: attention 4 · 81 = 324, FFN 2 · 9 · 36 = 648. The
# FFN has 648 of 972 numbers, two thirds. That is because 36 is 4 times 9.

# %% [markdown] quiz="ffn_share"
# **Predict.** Another model takes `d_ff` = 2 `d_model`. Without biases and norms, which share of the
# block is the FFN?
#
# - [ ] still two thirds :: That needs two rectangles of twice the size of attention's four squares, so `d_ff` = 4 `d_model`. It is the paper's choice, not a law.
# - [x] one half :: Right. Two rectangles of `d_model` by 2 `d_model` are four squares, as many as attention has.
# - [ ] one third :: That would be `d_ff` = `d_model`: two squares beside four.
# - [ ] it depends on `d_model` :: Both counts grow with the square of `d_model`, so the share stays. Only the ratio of `d_ff` to `d_model` counts.

# %% exercise="count_parameters"

# %% [markdown]
# Four blocks, with biases and norms. Only the second and the fourth have `d_ff` = 4 `d_model`. In
# the paper's block attention has 1,050,624 numbers, the FFN 2,099,712 and the norms 2,048, together
# 3,152,384: the FFN's share is 66.6 %.

# %% explore="parameter_pies"
shares = data("block_shares")
fig, axes = plt.subplots(1, 4, figsize=(10, 3))
parts = ("attention", "FFN", "norms")
for ax, (d, f), counts in zip(axes, shares["widths"], shares["counts"]):
    _, _, words = ax.pie(
        counts,
        colors=[figures.SKY, figures.ORANGE, "0.7"],
        startangle=90,
        counterclock=False,
        pctdistance=0.68,
        autopct=lambda p: f"{p:.1f} %" if p > 3 else "",
        wedgeprops={"edgecolor": "white"},
        textprops={"fontsize": 9},
    )
    ax.set_title(f"d_model {d}, d_ff {f}\n{counts.sum():,} numbers", fontsize=10)
fig.legend(parts, loc="outside lower center", ncols=3)
figures.describe(
    fig,
    "Four pies: the FFN holds 46.7, 63.6, 44.2 and 66.6 percent of the numbers of blocks with (d_model, d_ff) = "
    "(8, 16), (9, 36), (4, 8) and (512, 2048).",
)

# %% [markdown]
# Numbers are one thing, work is another. Per token, the projections of attention cost
# $4\, d_{model}^2$ multiplications, the FFN $8\, d_{model}^2$ (for `d_ff` = 4 `d_model`), and scores and
# mixing together $2\, n\, d_{model}$, where $n$ is the number of tokens in the sentence. Only the last
# grows with the sentence. The FFN does more than half of the work only while
# $n < 2\, d_{model}$, which is 1024 in the paper's block.

# %% explore="arithmetic_share"
shares = data("block_shares")
fig, ax = plt.subplots()
ax.semilogx(shares["seq"], 100 * shares["arithmetic"], base=2)
ax.axhline(50, color="0.6", linestyle=":")
ax.plot(1024, 50, "o", color=figures.ORANGE)
ax.annotate("one half at 1024 tokens", (1024, 50), (1700, 56))
ax.set(xlabel="tokens in the sentence", ylabel="FFN's share of multiplications (%)", ylim=(0, 75))
ax.set_title("d_model 512, d_ff 2048")
figures.describe(
    fig,
    "The share of the FFN in the multiplications of a block is two thirds for short sentences, one half at 1024 "
    "tokens, and falls towards zero for very long ones.",
)

# %% [markdown]
# ## 4. The same numbers, read as a memory
#
# Write the FFN as a sum over its hidden units. Call the columns of $W_1$ *keys* and the rows of
# $W_2$ *values*. Then unit $m$ does this:
#
# $$c_m = \mathrm{ReLU}(k_m \cdot x + b_m), \qquad \mathrm{FFN}(x) = \sum_m c_m\, v_m + b_2$$
#
# In words: *see how well the token matches the key; if the match is above the threshold, answer
# with the value, the more the better the match; add up all answers.* The threshold is $-b_m$. The
# number $c_m$ is the *coefficient* of the memory for this token.
#
# **By hand.** The tiny FFN holds three memories. The token is (1, 2):
#
# | memory | key (column of $W_1$) | match | bias | coefficient | value (row of $W_2$) | adds |
# |:-:|:-:|:-:|:-:|:-:|:-:|:-:|
# | 0 | (1, 0) | 1 | 0 | 1 | (1, 0) | (1, 0) |
# | 1 | (0, 1) | 2 | −3 | 0 | (0, 1) | nothing |
# | 2 | (−1, 1) | 1 | 0 | 1 | (1, 1) | (1, 1) |
#
# The sum is (2, 1), as before. Nothing has changed but the words.
#
# A key and its threshold cut the space of tokens in two: on one side the memory fires, and the more
# so the further from the edge; on the other side it is silent.

# %% explore="half_planes"
planes = data("half_planes")
side = planes["side"]
fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True)
for m, (ax, coefficients) in enumerate(zip(axes, planes["coefficients"])):
    shown = np.ma.masked_equal(coefficients, 0)
    image = ax.pcolormesh(side, side, shown, vmin=0, vmax=10, cmap="cividis", rasterized=True)
    ax.set_facecolor("0.82")
    ax.plot(1, 2, "o", color="white", markeredgecolor="black", markersize=9)
    ax.set(title=f"memory {m}", xlabel="feature 0 of the token", aspect="equal", xticks=[-4, -2, 0, 2, 4, 6])
    ax.grid(False)
axes[0].set_ylabel("feature 1 of the token")
fig.colorbar(image, ax=axes, label="coefficient")
figures.describe(
    fig,
    "Three maps of the plane of tokens; each memory is silent on one side of a straight line and grows on the other; "
    "the token (1, 2) lies on the firing side of memories 0 and 2 and on the silent side of memory 1.",
)

# %% [markdown]
# This reading is due to Geva and others (2021). They looked into one trained language model, a
# decoder of 16 layers, and found keys that match patterns people can name, such as text about
# TV shows. What a layer answers is the sum of many memories, hardly ever one alone.
#
# It looks like attention, and it is not. In attention the coefficients come from a softmax: they
# are never zero, and they sum to 1. Here a memory that does not match gives exactly 0, and the
# coefficients may sum to anything. Attention's keys and values are made from the tokens of the
# sentence. The FFN's are weights: the same for every sentence.

# %% exercise="recall"

# %% [markdown]
# ## 5. What a token recalls
#
# Which memories speak for a token? A large coefficient alone does not say it. A memory adds
# $c_m\, v_m$, and a coefficient of 5 with a tiny value moves the token less than a coefficient of 1
# with a long one. What counts is the length of the added vector:
#
# $$\text{strength}_m = c_m\, \lVert v_m \rVert$$
#
# In words: *coefficient times length of the value.* The coefficient is never negative, so no sign
# gets lost.
#
# **By hand.** For the tiny FFN and the token (1, 2): memory 0 has strength 1 · 1 = 1, memory 2 has
# 1 · √2 = 1.414, memory 1 is silent. The two strongest are [2, 0], in this order.

# %% explore="recalled_arrows"
arrows = data("recalled_arrows")
fig, ax = plt.subplots(figsize=(5.4, 3.4))
start = np.zeros(2)
for m, (added, colour) in enumerate(zip(arrows["added"], (figures.BLUE, "0.5", figures.ORANGE))):
    if arrows["coefficients"][m] > 0:
        ax.annotate("", start + added, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2.5})
        middle = start + added / 2
        ax.text(*(middle + [0.05, -0.16]), f"memory {m}: length {np.linalg.norm(added):.3f}")
        start = start + added
ax.plot(0, 0, "ko")
ax.plot(*arrows["y"], "k*", markersize=13, label="output (2, 1)")
ax.set(xlabel="feature 0", ylabel="feature 1", xlim=(-0.3, 3.1), ylim=(-0.4, 1.4), aspect="equal")
ax.legend(loc="upper left")
figures.describe(
    fig,
    "Two arrows joined end to end, memory 0 of length 1 and memory 2 of length 1.414, lead from the origin to the "
    "output (2, 1); the silent memory 1 has no arrow.",
)

# %% exercise="top_memories"

# %% [markdown]
# How many memories are silent for a token? That depends on the activation. *Swish* and *GELU* are
# smooth relatives of the ReLU: for negative numbers they give small negative numbers, and exactly
# zero almost never.

# %% [markdown] quiz="silent_units"
# **Predict.** A released translation model was trained with swish. For the first layer and one
# sentence, somebody put a ReLU in the place of swish, without any new training. Which share of the
# hidden numbers was then exactly zero?
#
# - [ ] about 7 % :: Then 93 % of the pre-activations would be positive. It is the other way round.
# - [ ] about 50 % :: That is what random weights give: as many negative numbers as positive ones. Trained weights are not random.
# - [x] about 93 % :: Right: 93.2 %. Most pre-activations were negative, so most memories hardly spoke. With swish, only 0.2 % were near zero.

# %% [markdown]
# With the ReLU, 93.2 % of the hidden numbers were zero; with swish, 0.2 % were near zero. Both were
# measured elsewhere, on 12 tokens of one sentence in a released English-German model. The change was
# not harmless: it moved the output by up to 1.59. Trained weights and their activation belong together.
#
# The figure repeats the comparison here, on random weights and on a memory written by hand: 128 facts
# and tokens that ask for one fact each. "Near zero" means closer than 0.01.

# %% explore="silent_share"
silent = data("silent_share")
fig, ax = plt.subplots(figsize=(7, 3.6))
place = np.arange(3)
for column, (label, shift, hatch) in enumerate((("random weights", -0.2, ""), ("written by hand", 0.2, "//"))):
    shares = 100 * silent["near_zero"][:, column]
    bars = ax.bar(place + shift, shares, 0.38, label=label, hatch=hatch, edgecolor="white")
    ax.bar_label(bars, [f"{share:.1f}" for share in shares], fontsize=9)
ax.set_xticks(place, silent["names"])
ax.set(ylabel="hidden numbers near zero (%)", ylim=(0, 119))
ax.legend(loc="upper right", ncols=2)
figures.describe(
    fig,
    "Share of hidden numbers near zero: ReLU 50.1 percent on random weights and 99.2 on a hand-written memory, "
    "swish 1.6 and 3.7, GELU 1.9 and 94.2.",
)

# %% [markdown]
# ## 6. Without the ReLU, two products are one
#
# Take the ReLU out. Then
#
# $$(x W_1 + b_1)\, W_2 + b_2 = x\, \underbrace{W_1 W_2}_{W} + \underbrace{b_1 W_2 + b_2}_{b}$$
#
# In words: *two linear layers in a row are one linear layer.* The hidden layer may be as wide as
# you like; all its numbers end in one matrix of `d_model` by `d_model`. If it is narrow, it even
# loses something: the rank of $W$ is at most `d_ff`.
#
# **By hand.** For the tiny FFN, $W = \begin{pmatrix} 0 & -1 \\ 1 & 2 \end{pmatrix}$ and
# $b = b_1 W_2 = (0, -3)$. For the token (1, 2): $x W = (2, 3)$, plus $b$ gives (2, 0). With the ReLU
# it was (2, 1). The difference is unit 1: its −1 now counts, and it takes (0, 1) away.
#
# The figure follows the tokens $(s, 2)$ while $s$ grows. Without the ReLU the output is a straight
# line, here a flat one: what unit 0 gains, unit 2 loses. The ReLU bends it.

# %% explore="bent_line"
line = data("bent_line")
fig, ax = plt.subplots()
ax.plot(line["s"], line["with_relu"], label="with the ReLU")
ax.plot(line["s"], line["without"], "--", label="without: one linear map")
ax.set(xlabel="s, feature 0 of the token (s, 2)", ylabel="feature 0 of the output")
ax.legend()
figures.describe(
    fig,
    "Along the tokens (s, 2) the first output of the tiny FFN falls, stays at 2 between s = 0 and s = 2, and rises; "
    "without the ReLU it is the constant 2.",
)

# %% exercise="collapse"

# %% [markdown]
# ## 7. A unit that fires only on both
#
# A key can ask for more than one thing. Suppose one direction of the stream means *cat* and another
# *chase*. You want a memory for "a cat that chases", silent for a cat alone and for a chase alone.
# One unit can do that, because of its threshold.
#
# Call the directions $v_1 \ldots v_n$. A token in which some of them are present is their sum. The
# unit must say
#
# $$\mathrm{ReLU}(w \cdot x + b) = \begin{cases} 1 & \text{if all are present} \\ 0 & \text{if one or more is missing} \end{cases}$$
#
# **By hand.** Take cat = (1, 0), chase = (0, 1), $w = (1, 1)$:
#
# | token | $w \cdot x$ | $b = 0$ | $b = -1$ |
# |:-:|:-:|:-:|:-:|
# | neither (0, 0) | 0 | 0 | 0 |
# | cat (1, 0) | 1 | 1 | 0 |
# | chase (0, 1) | 1 | 1 | 0 |
# | both (1, 1) | 2 | 2 | 1 |
#
# With $b = 0$ the unit fires on either: it says *or*. With $b = -1$ it says *and*. Same key, another
# threshold.
#
# Real directions are neither of length 1 nor at right angles. Take cat = (1, 0) and chase =
# (0.6, 0.8), and again their sum as key, $w = (1.6, 0.8)$. Now $w \cdot$ cat = 1.6, and 1.6 − 1 = 0.6:
# the unit fires on a cat alone. Adding the directions is not enough. The picture shows both cases;
# the unit fires beyond the solid line and reaches 1 on the dashed one.

# %% explore="and_regions"
fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
cases = {"right angles: works": ([1, 0], [0, 1]), "leaning: fires on either": ([1, 0], [0.6, 0.8])}
grid = np.linspace(-0.4, 2, 121)
for ax, (title, directions) in zip(axes, cases.items()):
    cat, chase = np.array(directions)
    key = cat + chase
    level = key[0] * grid[None, :] + key[1] * grid[:, None] - 1
    ax.contourf(grid, grid, level, levels=[0, 10], colors=[figures.SKY], alpha=0.25)
    ax.contour(grid, grid, level, levels=[0], colors=[figures.BLUE])
    ax.contour(grid, grid, level, levels=[1], colors=[figures.BLUE], linestyles="--")
    for name, token in {"neither": 0 * cat, "cat": cat, "chase": chase, "both": cat + chase}.items():
        ax.plot(*token, "o", color="black")
        ax.annotate(name, token, token + [0.05, 0.06])
    ax.set(title=title, xlabel="feature 0", aspect="equal", xlim=(-0.4, 2), ylim=(-0.3, 1.6))
axes[0].set_ylabel("feature 1")
figures.describe(
    fig,
    "Key = sum of the two directions, bias -1: for directions at right angles only the token with both lies in the "
    "firing region; for leaning directions cat alone and chase alone lie in it too.",
)

# %% exercise="and_unit"

# %% [markdown]
# ## 8. Write a fact by hand
#
# Now you write into the memory, without any training. A fact is a *key* (when to speak), a
# *threshold* $t$ (how good the match must be) and a *value* (what to add).
#
# One unit is not quite enough. Its answer grows with the match for ever: at a match of 9 it says
# seven times the value if $t = 2$. Two units cure that:
#
# $$\mathrm{ReLU}(z - t) - \mathrm{ReLU}(z - t - 1), \qquad z = k \cdot x$$
#
# In words: *start to speak at the threshold; one step later, take back whatever comes on top.*
#
# **By hand,** with $t = 2$:
#
# | match $z$ | first unit | second unit | together |
# |:-:|:-:|:-:|:-:|
# | 1.5 | 0 | 0 | 0 |
# | 2.5 | 0.5 | 0 | 0.5 |
# | 3 | 1 | 0 | 1 |
# | 7 | 5 | 4 | 1 |
#
# Below the threshold nothing, from $t + 1$ on exactly 1 times the value, and a straight ramp between.
# Attention cannot be silent like this: a softmax share is never zero, and how large it is depends on
# the rivals.

# %% explore="one_memory"
memory = data("one_memory")
fig, ax = plt.subplots()
ax.plot(memory["match"], memory["one"], ":", label="one ReLU")
ax.plot(memory["match"], memory["two"], label="two ReLUs: a written memory")
ax.plot(memory["match"], memory["softmax"], "--", label="softmax, with one rival of match 2.5")
ax.set(xlabel="match of token and key, z", ylabel="times the value", ylim=(-0.1, 2.6))
ax.legend()
figures.describe(
    fig,
    "Against the match: one ReLU grows without end from 2 on, two ReLUs rise from 0 at 2 to 1 at 3 and stay, and "
    "a softmax share is never exactly 0 or 1.",
)

# %% exercise="write_memory"

# %% [markdown]
# ### Four facts rebuild the worked example
#
# Lessons 2, 3 and 5 share one worked example: two tokens, `d_model` = 4, `d_ff` = 8. After attention and
# the first norm (post-norm) its two tokens are, rounded,
#
# ```
# token 1   1.474167   0.151197  -1.304071  -0.321293
# token 2   0.405789  -0.650240   1.422705  -1.178254
# ```
#
# A page that published the example simply assumed what the FFN answers: (0.08, −0.12, 0.05, 0.10) and
# (−0.06, 0.09, −0.03, 0.07). Four memories give exactly these numbers:
#
# | memory | key | threshold | value | fires on |
# |:-:|:-:|:-:|:-:|:-:|
# | A | (1, 0, −1, 0) | 1 | (0.05, −0.12, 0.05, 0.03) | token 1 |
# | B | (0, 0, 1, −1) | 1 | (−0.09, 0.09, −0.03, 0) | token 2 |
# | C | (1, 0, 0, −1) | 0.5 | (0.02, −0.02, 0.01, 0.04) | both |
# | D | (0, 1, 0, 1) | 1 | (0.5, −0.5, 0.5, −0.5) | neither |
#
# and $b_2$ = (0.01, 0.02, −0.01, 0.03), which every token gets.
#
# **By hand,** token 1: its match with A is 1.474 + 1.304 = 2.778, above 1 + 1, so A adds its
# whole value. C matches with 1.795, above 0.5 + 1: whole value. B and D match with less than
# their thresholds. So the output is A + C + $b_2$; its first entry is 0.05 + 0.02 + 0.01 = 0.08.
#
# The cell below writes the four facts with your `write_memory`, into an FFN that starts without a
# single hidden unit, and asks your `ffn`.

# %% explore="four_facts"
if own("ffn") and own("write_memory"):
    facts = [
        ([1, 0, -1, 0], 1.0, [0.05, -0.12, 0.05, 0.03]),
        ([0, 0, 1, -1], 1.0, [-0.09, 0.09, -0.03, 0.0]),
        ([1, 0, 0, -1], 0.5, [0.02, -0.02, 0.01, 0.04]),
        ([0, 1, 0, 1], 1.0, [0.5, -0.5, 0.5, -0.5]),
    ]
    params = np.zeros((4, 0)), np.zeros(0), np.zeros((0, 4)), np.array([0.01, 0.02, -0.01, 0.03])
    for key, threshold, value in facts:
        params = write_memory(params, np.array(key, float), threshold, np.array(value))
    print("hidden units:", len(params[1]))
    print(ffn(data("four_memories")["x"], *params))
else:
    print("This cell comes alive once ffn and write_memory pass their checks. Run the checks, then this cell.")

# %% explore="four_matches"
example = data("four_memories")
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True, sharey=True)
for token, ax in enumerate(axes):
    place = np.arange(4)
    fires = example["shares"][token] > 0
    colours = [figures.ORANGE if one else "0.75" for one in fires]
    ax.barh(place, example["matches"][token], color=colours, edgecolor="black", linewidth=0.5)
    for m, t in enumerate(example["thresholds"]):
        ax.plot([t, t], [m - 0.4, m + 0.4], color=figures.BLUE, label="starts (threshold)" if m == 0 else None)
        ax.plot([t + 1] * 2, [m - 0.4, m + 0.4], ":", color=figures.BLUE, label="full value" if m == 0 else None)
    ax.set(title=f"token {token + 1}", xlabel="match of token and key")
    ax.set_yticks(place, "ABCD")
axes[0].set_ylabel("memory")
axes[0].invert_yaxis()
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
figures.describe(
    fig,
    "Matches of both tokens with the four keys: token 1 passes the full-value mark of A and C, token 2 that of B and "
    "C; all other matches stay below their threshold, and D stays silent for both.",
)

# %% [markdown]
# ### Edit a fact
#
# The value of a memory is its two rows of $W_2$, one with a minus. Change both, and the memory says
# something else. Nothing else in the network needs to change.

# %% [markdown] quiz="edited_value"
# **Predict.** You add 0.1 to every entry of the value of memory C (in both of its rows, one with a
# minus). Which tokens' outputs move?
#
# - [ ] token 1 only :: Only A fires on token 1 and not on token 2. Look at C's row of the table.
# - [x] both tokens, by the same vector :: Right. C fires fully on both, so both get the new value. A shared memory cannot be changed for one token alone.
# - [ ] none, until the key is changed too :: The key decides when a memory speaks, the value what it says. C speaks for both tokens already.
# - [ ] all tokens there could ever be :: Only tokens whose match with C is above its threshold. Changing b2 would move all.

# %% explore="edited_fact"
moved = data("edited_fact")["moved"]
fig, ax = plt.subplots(figsize=(5, 3.2))
image = ax.imshow(moved, cmap="cividis", vmin=0, vmax=0.25)
for (m, token), distance in np.ndenumerate(moved):
    ax.text(token, m, f"{distance:.1f}", ha="center", va="center", color="black" if distance > 0.1 else "white")
ax.set_xticks([0, 1], ["token 1", "token 2"])
ax.set_yticks(range(4), "ABCD")
ax.set(ylabel="memory whose value is edited", aspect="auto")
ax.grid(False)
fig.colorbar(image, label="how far the output moves")
figures.describe(
    fig,
    "Adding 0.1 to the value of A moves token 1 only, of B token 2 only, of C both, of D neither; each move has length 0.2.",
)

# %% [markdown]
# Now edit your own. The cell writes the four facts with your function, once as they are and once with 0.1 added to
# the value of one of them. Change `edited`: 0 is A, 1 is B, 2 is C, 3 is D. With D nothing happens. A fact that no token asks for
# cannot be found by watching outputs.

# %% explore="edit_your_own"
from course import worked_example as example

edited = 0
if own("ffn") and own("write_memory"):
    answers = []
    for change in (0.0, 0.1):
        params = np.zeros((4, 0)), np.zeros(0), np.zeros((0, 4)), example.B2
        values = example.MEMORIES.copy()
        values[edited] += change
        for key, threshold, value in zip(example.W1.T[::2], -example.B1[::2], values):
            params = write_memory(params, key, threshold, value)
        answers.append(ffn(data("four_memories")["x"], *params))
    print("how each token's output moved:")
    print((answers[1] - answers[0]).round(6))
else:
    print("This cell comes alive once ffn and write_memory pass their checks. Run the checks, then this cell.")

# %% [markdown]
# ### Overload it
#
# How many facts fit? In `d_model` = 16 dimensions, at most 16 directions can be at right angles to each other. But
# there is room for many more that are *nearly* at right angles, and the threshold forgives a little.
# Storing more things than dimensions like this is called *superposition*.
#
# The experiment: draw $n$ random keys of length 1 and $n$ random values of length 1. Write them all
# into one FFN, threshold 2. A token that asks for a fact is its key at length 4 (a layer-normed token
# of 16 numbers has length √16 = 4), so its own memory matches with 4 and answers fully. Every other
# memory whose key leans towards the token by more than 2/4 (an angle below 60 degrees) speaks as
# well, and spoils the answer. The error is the length of what was read minus what was stored; the
# stored values have length 1.
#
# The second curve has the same keys and values without ReLUs: one matrix, $\sum_m k_m^\top v_m$. There
# every key that is not exactly at right angles spoils the answer a little.

# %% explore="overloaded"
load = data("overloaded")
fig, ax = plt.subplots()
ax.loglog(load["facts"], load["without"], "s--", color=figures.ORANGE, label="one matrix, no ReLU")
ax.loglog(load["facts"], load["with_relu"], "o-", color=figures.BLUE, label="written memories, threshold 2")
ax.axvline(16, color="0.5", linestyle=":")
ax.text(17, 0.005, "d_model = 16", color="0.3")
ax.axhline(1, color="0.5", linestyle=":")
ax.text(2, 1.15, "as large as the fact", color="0.3", fontsize=9)
ax.set(xlabel="facts stored", ylabel="mean read-out error", ylim=(0.004, 10))
ax.set_xticks(load["facts"], load["facts"])
ax.minorticks_off()
ax.legend(loc="lower right", bbox_to_anchor=(1, 0.18))
figures.describe(
    fig,
    "With one matrix the read-out error reaches 1 at about 16 facts, the number of dimensions; with written memories "
    "it is 0.11 there, 0.48 at 128 facts, and above 1 at 512.",
)

# %% [markdown]
# The matrix has failed at 16 facts: error 0.95, as large as the facts themselves. The written
# memories are at 0.11 there. They fail later: 0.48 for 128 facts, 1.13 for 512. There is no clear
# border where they break. They get worse little by little.
#
# Now overload your own. Change `n` and `threshold` and run the cell again. With threshold 3, all 64 facts are read
# without error. What does that cost? Ask with tokens that are only nearly their key, such as
# `4 * keys + 0.3 * rng.normal(size=keys.shape)`: a match below 4 now brings only a part of the value.

# %% explore="overload_your_own"
n, threshold = 64, 2.0
if own("ffn") and own("write_memory"):
    rng = np.random.default_rng(1)
    keys, values = rng.normal(size=(2, n, 16))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    params = np.zeros((16, 0)), np.zeros(0), np.zeros((0, 16)), np.zeros(16)
    for key, value in zip(keys, values):
        params = write_memory(params, key, threshold, value)
    errors = np.linalg.norm(ffn(4 * keys, *params) - values, axis=1)
    print(f"{n} facts in 16 dimensions, threshold {threshold}:")
    print(f"mean error {errors.mean():.3f}, worst {errors.max():.3f}, read without error: {(errors < 1e-9).mean():.0%}")
else:
    print("This cell comes alive once ffn and write_memory pass their checks. Run the checks, then this cell.")

# %% [markdown]
# ## 9. The way back
#
# How does such a memory learn? The loss sends a gradient `dy` = $\partial L / \partial y$ back to each
# output. Three steps, in the opposite order:
#
# $$\mathrm{dh} = \mathrm{dy}\, W_2^\top, \qquad \mathrm{dpre} = \mathrm{dh} \odot [\,\mathrm{pre} > 0\,], \qquad
# \mathrm{dx} = \mathrm{dpre}\, W_1^\top$$
#
# In words: *take the gradient back through the second matrix; keep it where the unit fired, and
# put zero where it was silent; take the rest back through the first matrix.* Here `pre` is
# $x W_1 + b_1$, and $\odot$ multiplies entry by entry.
#
# The weights get the input of their layer times the gradient of their layer, added up over all tokens,
# for all tokens used the same weights.
#
# **By hand.** The tiny FFN, $x = (1, 2)$, $\mathrm{dy} = (1, 1)$: dh = (1, 1, 2). Unit 1 was silent,
# so dpre = (1, 0, 2). Then dx = $1 \cdot (1, 0) + 2 \cdot (-1, 1) = (-1, 2)$: the columns of $W_1$,
# weighted by dpre.
#
# A silent memory learns nothing from a token: neither its key, nor its bias, nor its value. The
# picture shows the gradient of $W_1$ for one token. Only the columns of firing units are coloured.

# %% explore="who_learns"
learns = data("who_learns")
fig, axes = plt.subplots(2, 1, figsize=(7, 4), sharex=True, height_ratios=[2, 2])
units = np.arange(len(learns["pre"]))
axes[0].bar(units, learns["pre"], color=np.where(learns["pre"] > 0, figures.ORANGE, "0.75"))
axes[0].set(ylabel="pre-activation")
colours = plt.get_cmap("PuOr").copy()
colours.set_bad("0.82")
image = axes[1].imshow(np.ma.masked_equal(learns["dW1"], 0), cmap=colours, vmin=-5, vmax=5, aspect="auto")
axes[1].set(xlabel="hidden unit", ylabel="feature")
axes[1].set_xticks(units)
axes[1].grid(False)
fig.colorbar(image, ax=axes[1], label="entry of dW1")
figures.describe(
    fig,
    "Above, the pre-activations of ten hidden units for one token, three of them positive; below, the gradient of W1, "
    "whose columns are zero (grey) for the seven silent units.",
)

# %% exercise="ffn_backward"

# %% [markdown]
# ## What you now know
#
# - Attention moves information between tokens; the FFN computes on each token alone, with one set of
#   weights for all tokens and sentences of a layer.
# - Columns of $W_1$ are keys, minus $b_1$ are thresholds, rows of $W_2$ are values. The output is the
#   sum of all memories that fire, plus $b_2$.
# - Without the ReLU, two products are one. With it, a memory can be exactly silent, and can ask for
#   several things at once.
# - The FFN holds two thirds of a block's numbers if `d_ff` = 4 `d_model`, and does most of the
#   work only while sentences are shorter than 2 `d_model` tokens.
# - An average stays in the convex hull; an FFN does not.
# - You wrote a memory, changed what it says, and saw it fail when it held too much.

# %% [markdown] written="edit_a_fact" points=4
# ### Written question: can one edit a fact?
#
# A colleague says: "The facts of a language model are in its FFNs. So to correct a wrong fact, I look for the memory
# that stores it and overwrite its value. Nothing else will change."
#
# In at most 200 words: what of this is true for the memory that you wrote by hand? Name two reasons
# why it may go wrong in a trained model, each with an experiment of this lesson that shows it. What
# would you check after the edit?
#
# ---
#
# **Rubric (4 points)**
#
# - 1 point: for the hand-written memory it is true as far as the key reaches. Overwriting the value (both
#   rows, one with a minus) changes the output of every token whose match is above the threshold, in
#   proportion to its share, and of no other token.
# - 1 point: a first reason with its experiment. For example: one memory serves many tokens (memory C moved both
#   tokens); or an answer is the sum of many memories, so the fact is not in one place (`recall`, `top_memories`).
# - 1 point: a second reason with its experiment. For example: more facts than dimensions share the space (the overload
#   experiment: other facts leak into what is read, and an edit leaks into other facts); or with swish and GELU
#   hardly any memory is exactly silent (the figure of near-zero shares), so an edit moves every token a little.
# - 1 point: a check that looks beyond the edited fact. For example: ask for the fact in other words, ask for
#   neighbouring facts that should stay, compare outputs on unrelated text. A careful word about the evidence (one
#   decoder model of 16 layers was studied by Geva and others; finding and editing facts is later work) may
#   replace half of any point.
#
# **A model answer.** In my memory it is true within limits: the value is two rows of W2, and changing them moves
# exactly the tokens whose match is above the threshold. Memory C showed the limit: it fires on both tokens, so I
# could not correct one and spare the other. A trained unit may fire on many kinds of tokens. Second, a trained FFN
# holds more facts than it has dimensions. In the overload experiment other memories spoke as well when I asked for
# one fact; the answer was a sum, and an edited value would leak into other answers in the same way. So after an edit
# I would ask for the fact in several wordings, ask for facts about similar things that must not change, and
# compare the outputs on text that has nothing to do with it.

# %% [markdown]
# ## Where this shows up in real models
#
# - **Other activations.** BERT uses GELU, many translation models swish or ReLU, most recent language
#   models a gated FFN with three matrices instead of two, of which one opens and closes what another gives.
# - **Editing.** Later work than Geva's finds single units tied to facts (*knowledge neurons*), and edits facts by
#   changing one FFN matrix (*ROME*). Both report side effects as well.
# - **Mixtures of experts** have several FFNs per layer and send each token to one or two of them.
#
# ## Further reading
#
# - Vaswani et al. (2017), *Attention Is All You Need*, section 3.3: the FFN in one formula.
# - Geva, Schuster, Berant, Levy (2021), *Transformer Feed-Forward Layers Are Key-Value Memories*.
# - Dai et al. (2022), *Knowledge Neurons in Pretrained Transformers*; Meng et al. (2022), *Locating and Editing
#   Factual Associations in GPT* (ROME).
# - Elhage et al. (2022), *Toy Models of Superposition*.
# - Dong, Cordonnier, Loukas (2021), *Attention is Not All You Need: Pure Attention Loses Rank Doubly
#   Exponentially with Depth*.
# - Hendrycks, Gimpel (2016), *Gaussian Error Linear Units*; Ramachandran, Zoph, Le (2017), *Searching for
#   Activation Functions* (swish); Shazeer (2020), *GLU Variants Improve Transformer*.
# - Press, Smith, Levy (2020), *Improving Transformer Models by Reordering their Sublayers*.
