# %% [markdown]
# # 5 Assembling the block
#
# You have the norm, the residual and the feed-forward network. Two parts are still missing: softmax and attention. In
# this lesson you write them and put the encoder block together. There are two ways to do it, post-norm and pre-norm, which
# people mix up all the time. You write both. At the end stands a tool of your own that finds out which of 13 silent bugs a block has.
#
# **After this lesson you can**
#
# - turn scores into shares without an overflow,
# - cut features into heads, and say what one wrong reshape does,
# - write attention with several heads,
# - write the post-norm block and the pre-norm block from memory, and tell them apart in any code,
# - say what a single worked example cannot show, and choose an input that does.
#
# **It builds on** your `layer_norm` (2.1) and your `ffn` (3.1), on the residual of lesson 1, and on the half
# page about attention in lesson 0.
#
# **Time:** about 90 minutes for the core exercises with the reading. The stretch exercises take another hour; no core exercise needs them.

# %% overview

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import check, data, figures, hint, own, quiz, trace_page
from course.diagrams import draw_block
from course.worked_example import PUBLISHED, WEIGHTS_H, X

figures.style()

# %% [markdown]
# ## Your toolbox
#
# Paste your own `layer_norm` and `ffn` into the next cell. The two checks after it earn nothing and cost nothing. They are there so that
# you never look for a fault in the block that sits in one of its tools.

# %% toolbox="layer_norm, ffn"

# %% [markdown]
# ## The block at a glance
#
# An encoder block takes one row per token and returns one row per token, of the same width. Inside it are two sub-layers: attention,
# where tokens read each other, and the FFN, where each token thinks for itself. Each is wrapped in the same way.

# %% explore="post_norm_picture"
fig, ax = plt.subplots(figsize=(8.5, 1.9))
draw_block(ax, "post")
figures.describe(fig, "A post-norm block: the stream x runs straight through; attention and FFN branch off it and are added back, and after each sum stands a norm, on the stream itself.")

# %% [markdown]
# This is the **post-norm** order, the one of the original paper. Its rule for both sub-layers is
#
# $$y = \text{LayerNorm}(x + f(x))$$
#
# Read aloud: *let the sub-layer f propose a change, add it to what it read, and normalise the sum*. First *f* is the
# attention, then it is the FFN. Three of its steps are not linear: the softmax inside the attention, the ReLU, and the norm.
#
# One example goes with you through the whole lesson: `d_model = 4`, two tokens, one head, `d_ff = 8`.

# %% explore="two_tokens"
print("X, one row per token:")
print(X)
print("\nshapes of the twelve weights:", [W.shape for W in WEIGHTS_H])

# %% [markdown]
# The two tokens come from a worked example that was published on the web. It did not compute attention and FFN: it
# assumed what they return. This course has found weights that return exactly those numbers, and calls them **weights H**. So every step can be computed.
#
# We build from the inside out: scores become shares, shares become attention, attention and FFN become a block.

# %% [markdown]
# ## From scores to shares
#
# Attention first gives every token a **score** for every other: how well the two match. Scores can be any numbers. What it
# needs are **shares**: positive, and with the sum 1. Softmax makes shares of scores:
#
# $$\text{share}_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$
#
# Read aloud: *e to the power of my score, divided by the sum of e to the power of all scores in my row*.
#
# **By hand,** the scores (ln 3, 0): e to the ln 3 is 3, e to the 0 is 1, the sum is 4. The shares are (0.75, 0.25). Two equal
# scores share equally: (0, 0) gives (0.5, 0.5).
#
# Written down like this, it breaks on large scores:

# %% explore="overflow"
with np.errstate(over="ignore"):
    print(np.exp(np.array([10.0, 100.0, 709.0, 710.0])))

# %% [markdown]
# Above 709, e to the power of a score is too large for a float64 and becomes infinite. Infinity divided by infinity is `nan`, and a single `nan` spreads through everything after it.
#
# The way out: add the same number to all scores of a row. That multiplies top and bottom of the fraction by the same factor, so the shares stay as they are.

# %% explore="same_shares"
row = data("shares_of_a_row")
fig, axes = plt.subplots(2, 2, figsize=(7.5, 4.2), sharex=True)
for column, scores, shares in zip(axes.T, (row["scores"], row["shifted"]), (row["shares"], row["again"])):
    for ax, heights, words in zip(column, (scores, shares), ("score", "share")):
        bars = ax.bar(range(5), heights, color=figures.SKY if words == "score" else figures.ORANGE)
        ax.bar_label(bars, [f"{h:.1f}" if h > 90 else f"{h:.2f}" for h in heights], fontsize=9)
        ax.margins(y=0.2)
    column[1].set_xlabel("token that is read")
axes[0, 0].set(ylabel="score", title="scores")
axes[0, 1].set(title="the same scores plus 100")
axes[1, 0].set_ylabel("share (no unit)")
figures.describe(fig, "Five scores and their shares; with 100 added to every score, the shares below stay as they are: 0.46, 0.17, 0.06, 0.02 and 0.28.")

# %% [markdown]
# So you are free to choose what to add. A score of minus infinity is allowed: e to the power of it is 0. That is how a mask says "never read this one".

# %% exercise="softmax"

# %% [markdown]
# ## Several heads
#
# One set of shares per token is little: a verb may want to find its subject and its object at once. So the width is cut into **heads**. Each
# head takes its own slice of features and has its own shares.
#
# With `d_model = 8` and 2 heads, head 0 gets features 0 to 3 of every token and head 1 gets features 4 to 7. Each is
# `d_k = d_model / num_heads` wide. All heads then run at once if the heads come before the tokens:
#
# $$(\text{batch}, \text{seq}, d_\text{model}) \;\to\; (\text{batch}, \text{heads}, \text{seq}, d_k)$$
#
# What is cut is not the input x but its projections: queries, keys and values. Each of their features is computed from all of x, so **each head reads the whole token**.
#
# **By hand,** two tokens of four features, (0, 1, 2, 3) and (4, 5, 6, 7), and two heads: head 0 holds (0, 1) and (4, 5), head 1 holds (2, 3) and (6, 7).

# %% [markdown] quiz="one_reshape"
# **Predict.** The shape is to change from (1, 2, 4) to (1, 2, 2, 2), and `x.reshape(1, 2, 2, 2)` has that shape. What does its head 0 hold?
#
# - [ ] (0, 1) and (4, 5), as it should. :: A reshape never moves a number. In memory 0, 1, 2, 3 of the first token come first, and the first head gets the first four numbers.
# - [x] (0, 1) and (2, 3): both halves of the first token. :: Right. The numbers stay in memory order, so head 0 gets the whole first token, cut in two, and none of the second. No error, the right shape, the wrong content.
# - [ ] (0, 2) and (4, 6): every second feature. :: That is what you get from cutting into (d_k, num_heads) instead of (num_heads, d_k). One plain reshape keeps neighbours together.
# - [ ] Nothing: it raises an error. :: Both shapes hold eight numbers, so the reshape is legal. That is what makes this slip so hard to find.

# %% explore="cut_into_heads"
cut = data("cut_into_heads")
fig, axes = plt.subplots(1, 4, figsize=(9, 2.9))
panels = [(name, head) for name in ("right", "one_reshape") for head in (0, 1)]
for ax, (name, head) in zip(axes, panels):
    ax.imshow(cut[name][head], vmin=0, vmax=3, aspect="auto")
    for (r, c), token in np.ndenumerate(cut[name][head]):
        ax.text(c, r, f"{token:.0f}", ha="center", va="center", color="white" if token < 2 else "black")
    ax.set(xlabel="feature in the head", xticks=range(3), yticks=range(4))
    ax.set_title(f"{'cut and swapped' if name == 'right' else 'one reshape'}\nhead {head}", fontsize=10)
    ax.grid(False)
axes[0].set_ylabel("row in the head")
figures.describe(fig, "Which token each number of a head comes from, for 4 tokens, 6 features and 2 heads: cut and swapped, row t of each head belongs to token t; after one reshape, head 0 holds tokens 0 and 1 only, head 1 tokens 2 and 3.")

# %% exercise="split_heads"

# %% [markdown]
# ## The wrapper, with dropout (stretch)
#
# *If you are short of time, go on to the section on attention.*
#
# In training the paper does one thing more: it sets random entries of each branch to 0. This is **dropout**, and its place is part of the (post-norm) rule:
#
# $$y = \text{LayerNorm}(x + \text{Dropout}(f(x)))$$
#
# Read aloud: *drop entries of the proposed change, add what is left to x, normalise*. x itself is never dropped: the stream stays whole.
#
# Each entry goes with probability *p*, on its own. What stays is divided by 1 - *p*, so that the branch keeps its size on average. (This form is called
# inverted dropout.) In use, when training is over, nothing is dropped and nothing is scaled. The paper uses *p* = 0.1, also on the sum of embeddings and positions.
#
# **By hand,** x = (2, 0), branch (0.5, -1), *p* = 0.5, and the draw drops the second entry: 0.5 / (1 - 0.5) = 1, so the branch becomes (1, 0) and the sum is (3, 0). In use the sum is (2.5, -1).

# %% explore="dropout_steps"
steps = data("dropout_steps")
fig, axes = plt.subplots(1, 4, figsize=(10.5, 2.3), sharey=True)
for ax, (name, values) in zip(axes, steps.items()):
    image = ax.imshow(values, cmap="PuOr", vmin=-3, vmax=3, aspect="auto")
    for r, c in np.argwhere(values == 0):
        ax.text(c, r, "0", ha="center", va="center")
    ax.set(title=name, xlabel="feature")
    ax.grid(False)
axes[0].set(ylabel="token", yticks=range(4))
axes[3].set_title("x + dropout(f(x))")
fig.colorbar(image, ax=axes, label="entry")
figures.describe(fig, "Four maps of 4 tokens by 8 features: x, the branch f(x), the branch after dropout with zeros scattered over all tokens and features and the rest larger, and the sum, in which x is whole.")

# %% exercise="dropout_sublayer"

# %% [markdown]
# ## Attention
#
# Every token asks, offers, and hands out. From its row *x* come a **query** (what am I looking for?), a **key** (what do I have?) and a
# **value** (what do I hand over?): `x @ W_q`, `x @ W_k`, `x @ W_v`. For one head:
#
# $$\text{head} = \text{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# Read aloud: *multiply each query with each key, divide by the root of the head's width, turn each row into shares, and mix the
# values by these shares*. Row *i* of the shares belongs to the token that **reads**; column *j* to the token that **is read**.
#
# With several heads, each does this on its own slice. Their results are joined side by side, head 0 first, and multiplied by `W_o`.
#
# Why the root? A dot product adds up `d_k` products, and a sum of `d_k` random products of size 1 is about the root of `d_k` in size. Without the division, wide
# heads would have large scores, and a softmax of large scores looks at one token only. It is the width of **one head** that counts, not `d_model`.
#
# **By hand,** with weights H. The queries, and the keys in units of ln 3:
#
# | | Q | | | | K / ln 3 | | | |
# |---|--:|--:|--:|--:|--:|--:|--:|--:|
# | token 1 | 1.3 | 0.5 | -0.7 | -0.7 | 0.7 | 0.5 | -0.5 | 0 |
# | token 2 | -0.1 | -0.8 | -0.7 | 0.5 | -1.2 | -0.1 | -0.4 | -1.2 |
#
# Query 1 with key 1: 1.3 · 0.7 + 0.5 · 0.5 + 0.7 · 0.5 + 0 = 1.51. Half of it, since the root of 4 is 2, is 0.755. Query 1 with key 2 comes to -0.49, and
# half of it to -0.245. The gap is exactly 1, in units of ln 3. So token 1 has the shares of (ln 3, 0) from above: 0.75 for itself, 0.25 for token 2.
# Token 2 has -0.06 twice, so it reads both alike: 0.5 and 0.5.
#
# The values are (0.7, 0.2, 0.3, 1.2) and (0, -0.4, -0.4, -0.1). Token 1 takes three quarters of the first and a quarter of the second: (0.525, 0.05, 0.125, 0.875).
# Times `W_o` that is **(0.12, -0.08, 0.15, -0.03)**, the very row that the published example assumed. Token 2 gets (0.09, -0.05, 0.11, -0.02).

# %% explore="who_reads_whom"
shares = data("worked_trace")["A"]
fig, ax = plt.subplots(figsize=(4.6, 3.2))
image = ax.imshow(shares, vmin=0, vmax=1)
for (reader, read), share in np.ndenumerate(shares):
    ax.text(read, reader, f"{share:.2f}", ha="center", va="center", color="black" if share > 0.4 else "white")
ax.set(xticks=[0, 1], yticks=[0, 1], xlabel="token that is read", ylabel="token that reads")
ax.set_xticklabels(["1", "2"])
ax.set_yticklabels(["1", "2"])
ax.grid(False)
fig.colorbar(image, label="share")
figures.describe(fig, "The shares of the worked example: token 1 reads itself with 0.75 and token 2 with 0.25; token 2 reads both with 0.5; each row sums to 1.")

# %% [markdown]
# Two things follow from the formula. Nothing in it says where a token stands: shuffle the tokens and the output rows are shuffled along
# (lesson 4). And nothing hides a token: an encoder's token reads all tokens, later ones too. Real encoders hide only the padding.

# %% exercise="multi_head_attention"

# %% [markdown]
# ## The block, post-norm
#
# All parts are there. With A for the attention, F for the FFN, and L1 and L2 for the two norms, each with its own gamma and beta:
#
# $$y = L_1(x + A(x)) \qquad \text{output} = L_2(y + F(y))$$
#
# Read aloud: *y is the norm of x plus its attention; the output is the second norm of y plus the FFN of y*. The second sub-layer knows nothing of x: it reads y, and it adds to y.
#
# **By hand,** token 1 of the example:
#
# | step | | | | |
# |---|--:|--:|--:|--:|
# | x + A(x) | 1.12 | 0.42 | -0.35 | 0.17 |
# | minus its mean 0.34 | 0.78 | 0.08 | -0.69 | -0.17 |
# | divided by its deviation 0.5291: this is y | 1.4742 | 0.1512 | -1.3041 | -0.3213 |
# | F(y) | 0.08 | -0.12 | 0.05 | 0.10 |
# | y + F(y) | 1.5542 | 0.0312 | -1.2541 | -0.2213 |
# | normed again: the output | 1.5200 | 0.0037 | -1.2760 | -0.2477 |
#
# The FFN of weights H is four memories, as in lesson 3. Memory A fires on token 1 only, memory B on token 2 only, C on both and D on neither. For token 1 the
# FFN returns value A plus value C plus `b2`.
#
# `eps` is `1e-5` in this course. Programs differ here: tensor2tensor has `1e-6`, BERT `1e-12`. With trained weights you have to use the one they were trained with.

# %% exercise="encoder_block"

# %% [markdown]
# ## Every number of the example
#
# Here is every matrix on one page, as a picture and as text (print it if you like paper). Orange is negative, purple is positive.

# %% explore="trace_picture"
trace = data("worked_trace")
figures.describe(trace_page.as_figure(trace), "Every matrix of the worked example as a table of coloured cells, from X over Q, K, V, the shares and both sums to the output; the text below holds the same numbers.")

# %% explore="trace_text"
print(trace_page.as_text(data("worked_trace")))

# %% explore="trace_own"
my_block = own("encoder_block")
if my_block is None:
    print("Once the check of 5.5 passes, this cell compares your block with the page above.")
else:
    mine = my_block(X[None], *WEIGHTS_H, 1)[0]
    print("your block:", mine.round(6), sep="\n")
    print("largest difference from the page:", np.abs(mine - data("worked_trace")["output"]).max())

# %% [markdown]
# There is also a version for pencil and paper, with 1.1 in place of ln 3: see `docs/handout` in the course's repository, or ask your instructor.

# %% [markdown]
# ## The numbers as published
#
# The page that this example comes from printed other numbers. Side by side:
#
# | | token 1, published | token 1, right | token 2, published | token 2, right |
# |---|---|---|---|---|
# | x + A(x) | 1.12 0.42 -0.35 0.17 | the same | 0.39 -0.15 0.91 -0.42 | the same |
# | its deviation | 0.507 | 0.5291 | not printed | 0.5113 |
# | y | 1.54 0.16 -1.36 -0.34 | 1.4742 0.1512 -1.3041 -0.3213 | 0.40 -0.52 1.38 -1.26 | 0.4058 -0.6502 1.4227 -1.1783 |
# | output | 1.56 0.10 -1.21 -0.18 | 1.5200 0.0037 -1.2760 -0.2477 | 0.38 -0.46 1.40 -1.22 | 0.3460 -0.6090 1.4496 -1.1866 |
#
# One deviation, all 8 entries of y and all 8 of the output are wrong: 17 numbers. And you need not believe our program. **The
# published rows prove it themselves.** With gamma = 1 and beta = 0, a row that leaves a layer norm has the mean 0 and a variance of 1 (a little less, because of eps). Printed with
# two decimals, each entry may be off by 0.005. That moves the mean by 0.005 at most, and the variance stays between 0.990 and 1.010.

# %% explore="published_rows"
fig, axes = plt.subplots(1, 2, figsize=(8.5, 3))
rows = {"y, token 1": PUBLISHED["X'"][0], "y, token 2": PUBLISHED["X'"][1], "output, token 1": PUBLISHED["output"][0], "output, token 2": PUBLISHED["output"][1]}
for ax, measure, low, high, words in zip(axes, (np.mean, np.var), (-0.005, 0.990), (0.005, 1.010), ("mean", "variance")):
    values = [measure(row) for row in rows.values()]
    ax.axvspan(low, high, color=figures.GREEN, alpha=0.35)
    ax.plot(values, range(4), "o", color=figures.RED)
    for place, value in enumerate(values):
        ax.annotate(f"{abs(value):.4f}", (value, place), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=9)
    ax.set(xlabel=f"{words} of the published row", yticks=range(4), ylim=(3.6, -0.6))
    ax.set_yticklabels(rows if words == "mean" else [])
    ax.margins(x=0.25)
figures.describe(fig, "Mean and variance of the four published rows beside the green band that rounding allows: both rows of y miss the variance (1.0906, 0.9806), both rows of the output miss the mean (0.0675, 0.0250) and the variance.")

# %% [markdown]
# The rows of y have variances of 1.0906 and 0.9806, the rows of the output have means of 0.0675 and 0.0250. No layer norm with gamma = 1 and beta = 0 prints
# that, whatever its input. (In row 1 of y the cause can be seen: it is what a deviation of 0.507 gives, an arithmetic slip.) A right program, compared with the published rows at a tolerance of 0.005,
# fails on 16 of 16 entries. So this course checks against computed numbers and says so.

# %% [markdown]
# ## What one example cannot show
#
# Your block agrees with the page to six decimals. Is it right? The example has one sentence, one head, gamma = 1 and beta = 0, and small whole numbers as weights.

# %% [markdown] quiz="blind_spots"
# **Predict.** Which of these bugs does the worked example show, in the first six decimals?
#
# - [ ] Scores divided by the root of d_model instead of d_k. :: With one head d_k is d_model, so both are 2. The example cannot see it.
# - [ ] gamma1 and beta1 used in both norms. :: Both gammas are 1 and both betas 0, so it does not matter which is used. A freshly made model has the same blind spot.
# - [ ] Tokens that read tokens of other sentences. :: There is one sentence. Nothing can leak.
# - [x] A variance divided by d_model - 1. :: Right: it moves the output by up to 0.198. The other three move it by exactly 0.

# %% explore="blind_spots"
spots = data("blind_spots")
place = np.arange(len(spots["names"]))
floor = 1e-9
fig, ax = plt.subplots(figsize=(8.5, 4.2))
ax.barh(place - 0.2, np.maximum(spots["example"], floor), 0.38, label="worked example", color=figures.SKY)
ax.barh(place + 0.2, spots["telling"], 0.38, label="telling input", color=figures.ORANGE)
for y, value in zip(place, spots["example"]):
    if value < floor:
        ax.text(2e-9, y - 0.2, "0: not seen", va="center", fontsize=9)
ax.axvline(1e-6, color=figures.BLACK, linestyle="--", lw=1)
ax.set(xscale="log", xlim=(floor, 30), yticks=place, yticklabels=spots["names"], xlabel="largest difference from the right output (log scale)")
ax.invert_yaxis()
ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=2, frameon=False)
figures.describe(fig, "Nine wrong blocks: four of them agree with the worked example exactly, two more differ by less than 0.00001; the telling input shows all nine by more than 0.05.")

# %% [markdown]
# Four of nine bugs change nothing at all, and the two about eps move the output by less than 0.00001: the wrong `eps = 1e-6` by 0.0000068. Compare at 0.000001 or
# tighter, or you will miss those. NumPy's `allclose` with its default tolerance lets seven of the eight entries pass with the wrong eps.
#
# The telling input differs from the example in five ways: two sentences, two heads, random gammas and betas, weights without a pattern, and one sentence of tokens of size 0.01, where eps counts. Each bug of the picture needs one of them to be seen.

# %% [markdown]
# ## One box moved: pre-norm
#
# Many later models put the norms elsewhere. Here are both orders:

# %% explore="two_orders"
fig, axes = plt.subplots(2, 1, figsize=(8.5, 3.7))
for ax, order in zip(axes, ("post", "pre")):
    draw_block(ax, order)
figures.describe(fig, "Post-norm and pre-norm block one above the other: in post-norm the norms stand on the stream, after each sum; in pre-norm they stand at the head of the branches, and the stream runs through untouched.")

# %% [markdown]
# In **pre-norm** the norm has moved from the stream into the branch:
#
# $$u = x + A(L_1(x)) \qquad \text{output} = u + F(L_2(u))$$
#
# Read aloud: *u is x plus the attention of its norm; the output is u plus the FFN of its norm*. The stream itself is only ever added to. The normed copy is for the branch to read; it is not added back.
#
# **By hand,** token 1 of the example: the mean of (1, 0.5, -0.5, 0.2) is 0.3, the deviation is 0.5431, and the attention reads (1.2888, 0.3682, -1.4729, -0.1841). What it returns is added to x
# as it was. The whole pre-norm block with weights H returns (0.895147, 0.472883, 0.110796, 0.740305) for token 1.

# %% [markdown] quiz="silent_branches"
# **Predict.** Set `W_o`, `W2` and `b2` to zero: both branches return 0. What do the two blocks return for x = (3, 1), with gamma = 1 and beta = 0?
#
# - [ ] Both return (3, 1): x plus nothing. :: In post-norm the sum still goes through two norms. The residual does not lead around them.
# - [x] Pre-norm (3, 1), post-norm (1, -1). :: Right. In pre-norm a silent branch passes x through exactly. In post-norm it gives LayerNorm(x), and once more.
# - [ ] Pre-norm (1, -1), post-norm (3, 1). :: It is the other way round. In pre-norm the norms sit inside the branches, and the branches are silent.
# - [ ] Both return (1, -1). :: In pre-norm no norm stands on the stream. Follow the blue line in the picture.

# %% exercise="prenorm_block"

# %% [markdown]
# ## What the move changes: depth
#
# In pre-norm the stream is a sum: x, plus one change per sub-layer. The identity path runs from the first block to the last, and carries a gradient back untouched: its Jacobian is the identity matrix. In post-norm every add is followed by a
# norm, so that path goes through two norms per block. Each norm's Jacobian removes two directions and rescales the rest (lesson 2).
#
# But the pre-norm stream has no norm to hold it: **it grows**, while in post-norm every sub-layer but the first reads a normed stream. (Some pages say the reverse.) At the end of a pre-norm stack one last norm brings the stream back to size.
#
# That has a consequence for the **last** layer.

# %% [markdown] quiz="deeper_gradient"
# **Predict.** Stacks of 1 to 24 blocks with random weights. The gradient that arrives at the output has length 1. How long is the gradient of the last layer's `W2` as the stack gets deeper?
#
# - [ ] It shrinks in both orders. :: The last layer is the first that the gradient meets. Whatever vanishes on the way down has not happened yet.
# - [ ] It shrinks in post-norm and stays in pre-norm. :: It is the other way round: the stream that grows is the pre-norm stream, and the last norm divides by its size.
# - [x] It stays in post-norm and shrinks in pre-norm. :: Right. The last norm divides by the size of the stream. In post-norm that is always about the same; in pre-norm it grows like the root of the depth.
# - [ ] It stays in both. :: In post-norm it does. In pre-norm the last norm has to divide by a stream that grows with every block.

# %% explore="last_layer_gradient"
deep = data("last_layer_gradient")
fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.5))
left.plot(deep["depth"], deep["post"], "o-", label="post-norm")
left.plot(deep["depth"], deep["pre"], "s-", label="pre-norm")
left.plot(deep["depth"], 10 / np.sqrt(deep["depth"]), ":", color=figures.BLACK, label="10 / root of depth")
left.set(xlabel="blocks in the stack", ylabel="gradient of the last W2 (length)", xticks=deep["depth"], ylim=(0, 11))
left.legend()
right.plot(deep["stream_post"], label="post-norm")
right.plot(deep["stream_pre"], label="pre-norm")
right.set(xlabel="after this many blocks", ylabel="size of the stream (root mean square)", ylim=(0, 6))
right.legend()
figures.describe(fig, "Left: the gradient of the last layer stays near 9 in post-norm stacks of 1 to 24 blocks and falls from 8.7 to 2.0 in pre-norm stacks, like ten over the root of the depth. Right: the pre-norm stream grows from 1 to 5, the post-norm stream stays at 1.")

# %% [markdown]
# Post-norm: between 8.8 and 9.7 at every depth. Pre-norm: 8.7 for one block, 2.0 for 24, close to 10 divided by the root of the depth. (Width 64, 12 tokens, 8 heads, `d_ff` 256, random weights, mean of five draws.)
#
# Xiong et al. (2020) connect this with training. In deep post-norm stacks the layers near the output start with large gradients, and the learning rate has to start small (warm-up). Their pre-norm
# stacks trained without warm-up; large models still use one. It does not follow that pre-norm is better: where post-norm trains, it can end better (Takase et al. 2022).

# %% [markdown]
# ## The stack
#
# An encoder is blocks in a row. Each reads what the one before returned, and each has weights of its own: the FFN's weights are shared over tokens and sentences, not over layers. A pre-norm stack ends in one last
# norm. A post-norm stack needs none: its last block ends in one.
#
# **By hand,** no layers at all: the output is x. Two layers of weights H, post-norm: token 1 comes out as (1.593763, -0.401763, -1.138234, -0.053766).

# %% exercise="encoder"

# %% explore="through_depth"
paths = data("through_depth")
colours = [figures.BLUE, figures.ORANGE, figures.GREEN, figures.PURPLE, figures.SKY, figures.RED]
fig, axes = plt.subplots(1, 2, figsize=(10, 4.2))
for ax, norm in zip(axes, ("post", "pre")):
    for token, (word, colour) in enumerate(zip(paths["words"], colours)):
        way = paths[norm][:, token]
        ax.plot(*way.T, "-", color=colour, lw=1.5, marker=".", label=f"{word} ({token})")
        ax.plot(*way[0], "o", color=colour, ms=8)
        ax.plot(*way[-1], "s", color=colour, ms=7)
    ax.set(title=f"{norm}-norm", xlabel="first direction", ylabel="second direction")
fig.legend(*ax.get_legend_handles_labels(), loc="outside right center", title="token")
figures.describe(fig, "Six tokens of a toy sentence on their way through six blocks, from a dot to a square, in the two directions in which they differ most: in post-norm they are carried round together and end close to each other; in pre-norm they move away from the middle and stay apart.")

# %% [markdown]
# Each line is one token of *the cat sat on the mat* on its way through six blocks, from its dot to its square. The two *the* are the same word at two places. The weights are random, so the picture says nothing
# about meaning. It does show the two streams. In post-norm the rows have the length 5.7 after every block, and random blocks push all tokens the same way: the mean cosine between two tokens grows from 0.10 to 0.97. In pre-norm
# the rows grow from 6.3 to 15.4; each keeps its start as part of the sum, and the cosine ends at 0.66.

# %% [markdown]
# ## A museum of bugs
#
# Nothing in this section is graded. Each exhibit has been found in public code or text, most of them many times and in well-known places. None of them gives an error message.
#
# | what was written | why nobody noticed | the input that exposes it |
# |---|---|---|
# | **Variance divided by d - 1.** | That is the default of several libraries' `std`. At width 512 the result is off by 0.1 %. | A narrow row: at width 4 it is off by 13.4 %. |
# | **eps added outside the root.** | For a row like (2, 0, -1, 3) only the sixth decimal changes. | A quiet row, (0.001, -0.001, 0.001, -0.001): the right norm returns 0.3015 at its first place, this one 0.9901. |
# | **Pre-norm code under post-norm text.** | Both train. Text and figure say post-norm, the code has the norm in the branch. | Silent branches (`W_o`, `W2`, `b2` zero): does x come back, or its norm? |
# | **Sines and cosines in two blocks instead of interleaved.** | Both tables carry the same information, and a model trained with either is fine. | Position 0, before any training: 0, 1, 0, 1 or 0, 0, 1, 1? |
# | **A weight matrix transposed.** | Square matrices fit both ways. | The token (1, 0, 0, 0): `x @ W` is the first row of `W`, not its first column. |
# | **A mask the wrong way round.** | In some libraries 1 means "read this", in others "hide this". | A sentence with padding: change the padding. The rows of the real tokens must not move. |
# | **Heads merged by one reshape.** | The tests used one head. | Two heads; swap two tokens. The output rows must swap and not change. |
# | **One norm in both places.** | gamma is 1 and beta 0 in every new model. | Two different gammas. |
# | **Sentences that read each other.** | The tests used a batch of one. | A sentence alone and the same sentence in a batch. |
# | **`x += ...` inside the block.** | The first answer is right. | The same call a second time. |
#
# The last column is the one to keep. Four of these inputs, put to your own block:

# %% explore="four_inputs"
my_block, my_prenorm = own("encoder_block"), own("prenorm_block")
if my_block is None or my_prenorm is None:
    print("Once the checks of 5.5 and 5.6 pass, this cell puts four of these inputs to your blocks.")
else:
    rng = np.random.default_rng(0)
    d, heads = 4, 2
    shapes = [(d, d)] * 4 + [(d, 6), (6,), (6, d), (d,)] + [(d,)] * 4
    weights = [rng.normal(size=shape) for shape in shapes]
    x = rng.normal(size=(2, 3, d))
    whole = my_block(x, *weights, heads)
    swapped = my_block(x[:, [1, 0, 2]], *weights, heads)[:, [1, 0, 2]]
    print("two tokens swapped:    largest change", np.abs(swapped - whole).max())
    print("a sentence alone:      largest change", np.abs(my_block(x[1:], *weights, heads) - whole[1:]).max())
    print("a second call:         largest change", np.abs(my_block(x, *weights, heads) - whole).max())
    silent = [W * (place not in (3, 6, 7)) for place, W in enumerate(weights)]
    print("silent branches:       pre-norm returns x:", bool(np.array_equal(my_prenorm(x, *silent, heads), x)))

# %% [markdown]
# ## How bad is a bug? Two measures
#
# How far is a wrong output from the right one? Two answers are common: the **largest difference** of any entry, and the **mean cosine** between the right and the wrong row of each token.
# They need not agree. Three bugs, measured elsewhere in a released translation model:
#
# | bug | largest difference | mean cosine |
# |---|--:|--:|
# | embeddings not scaled by the root of d_model | 8.72 | 0.113 |
# | sines and cosines in the wrong order | 4.12 | 0.776 |
# | no positions at all | 1.99 | 0.641 |
#
# By the largest difference, the wrong order is worse than no positions. By the cosine it is the milder of the two. The 12 visible bugs of exercise 5.8, each built into all blocks of a random stack of six:

# %% explore="two_measures"
bugs = data("two_measures")
seen = bugs["difference"] > 1e-3
fig, ax = plt.subplots(figsize=(8, 4.4))
ax.plot(bugs["difference"][seen], bugs["cosine"][seen], "o")
beside = {"no-residual-1": (-30, 8), "block-input-twice": (-92, -4), "ffn-reads-input": (-84, -4), "no-residual-2": (8, -3)}
for name, x, y in zip(np.array(bugs["names"])[seen], bugs["difference"][seen], bugs["cosine"][seen]):
    ax.annotate(name, (x, y), xytext=beside.get(name, (6, 4)), textcoords="offset points", fontsize=9)
ax.set(xscale="log", xlabel="largest difference (log scale)", ylabel="mean cosine with the right rows", xlim=(0.05, 40), ylim=(-0.15, 1.1))
figures.describe(fig, "Twelve bugs in a stack of six blocks, largest difference against mean cosine: as a trend the cosine falls as the difference grows, but single bugs change places, such as ffn-reads-input and no-residual-2.")

# %% [markdown]
# Again some change places: *ffn-reads-input* has the smaller largest difference (2.06 against 2.56 for *no-residual-2*) but the lower cosine (0.773 against 0.805). The largest difference asks about the worst
# single number; the cosine asks about directions and ignores length. (The thirteenth bug, a wrong eps, moves this stack by 0.0000036 and its cosine by nothing. A measure can also be blind.)

# %% [markdown]
# ## Who can see whom?
#
# You get a block and may not look inside. Which tokens can read which? Change one token a little and see which output rows move. Below, four blocks were asked in this way. Each column
# is the token that was changed, each row an output; a cell with 0 did not move at all.
#
# **Before you read on:** one block has no mask, one is a decoder's, one hides two padding tokens, one lets a token see its neighbours only. Which is which?

# %% explore="who_sees_whom"
seen = data("who_sees_whom")
fig, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharey=True)
for ax, (name, moved) in zip(axes, seen.items()):
    ax.imshow(np.log10(np.maximum(moved, 1e-4)), vmin=-4, vmax=0.5)
    for r, c in np.argwhere(moved == 0):
        ax.text(c, r, "0", ha="center", va="center", color="white", fontsize=9)
    ax.set(title=f"block {name}", xlabel="token that was changed", xticks=range(8), yticks=range(8))
    ax.grid(False)
axes[0].set_ylabel("output row")
figures.describe(fig, "Four maps of 8 by 8: in block A all cells above the diagonal are 0; in B none is; in C the last two columns are 0 except on the diagonal; in D all cells beyond the neighbours of the diagonal are 0.")

# %% [markdown]
# A is the decoder's (causal) mask: nothing moves an earlier row. B has no mask. C hides tokens 6 and 7: nobody reads them, yet they move their own rows, because the residual lets a token see itself whatever the mask
# says. D is the window. The test needs no formula and no access to the weights: it works on a trained model as well.

# %% [markdown]
# ## Name the bug
#
# Now turn the idea round: build a tool that gets a block as a black box and says what is wrong with it. You know the weights, so you can compute what each suspect would answer. A block is one of these fourteen. A, F, L1, L2 are as before, and y is
# L1(x + A(x)):
#
# | label | what it computes |
# |---|---|
# | `right` | L2(y + F(y)) |
# | `pre-norm` | u = x + A(L1(x)), then u + F(L2(u)) |
# | `ffn-first` | v = L1(x + F(x)), then L2(v + A(v)) |
# | `block-input-twice` | L2(x + F(y)) |
# | `norm-1-twice` | L1(y + F(y)) |
# | `norms-swapped` | w = L2(x + A(x)), then L1(w + F(w)) |
# | `no-residual-1` | q = L1(A(x)), then L2(q + F(q)) |
# | `no-residual-2` | L2(F(y)) |
# | `ffn-reads-input` | L2(y + F(x)) |
# | `no-second-norm` | y + F(y) |
# | `parallel` | L2(x + A(x) + F(x)) |
# | `variance-d-1` | as `right`, but both norms divide the variance by d_model - 1 |
# | `eps-1e-6` | as `right`, but eps is `1e-6` in both norms |
# | `batch-mixing` | as `right`, but all sentences attend to each other, as one long sentence |
#
# The formulas are easy. What needs thought is the **probe**: the input on which all fourteen give different answers.
#
# **By hand,** why eps hides. A row with variance 1 is divided by the root of 1.00001 or of 1.000001: the results differ by 4.5 millionths. A row with entries around 0.01 has a variance around 0.0001. It is divided by the root of
# 0.00011, which is 0.010488, or by the root of 0.000101, which is 0.010050: they differ by more than 4 %.

# %% exercise="diagnose"

# %% [markdown]
# How large should a probe be? Here is each bug's largest difference from the right block, for the same random probe at every size.

# %% explore="probe_size"
probe = data("probe_size")
loud = {"eps-1e-6": figures.RED, "variance-d-1": figures.ORANGE, "batch-mixing": figures.BLUE}
fig, ax = plt.subplots(figsize=(7.5, 4))
for name, gaps in zip(probe["names"], probe["gap"]):
    if name in loud:
        ax.loglog(probe["size"], gaps, color=loud[name], lw=2.2, label=name, zorder=3)
    else:
        ax.loglog(probe["size"], gaps, color="0.75", lw=1)
ax.plot([], [], color="0.75", label="the other ten")
ax.set(xlabel="size of the probe's entries (log scale)", ylabel="largest difference (log scale)", ylim=(1e-7, 1e3))
ax.legend(fontsize=9)
figures.describe(fig, "Largest difference from the right block against the size of the probe, for 13 bugs: most lines lie between 0.1 and 10 everywhere; the one of the wrong eps is as loud as the others for probes of size 0.001 and falls below 0.00001 for large ones.")

# %% [markdown]
# ## What you now know
#
# - Softmax makes shares of scores; subtracting the row's maximum changes nothing but the overflow.
# - Heads are slices of the projected features. Cut, swap, attend, swap back, join.
# - Post-norm: the norm takes the sum, on the stream. Pre-norm: the norm stands in the branch, and the stream is only added to.
# - A silent branch passes x through in pre-norm. In post-norm it gives LayerNorm(x).
# - The pre-norm stream grows with depth and needs one last norm; the gradient of its last layer falls like one over the root of the depth.
# - One worked example proves little. A telling input has several sentences, several heads, different gammas, and small numbers.
#
# The order "attention first, then FFN" is a choice that works, not a law. Other orders and parallel sub-layers work too.

# %% [markdown] written="one_example" points=4
# **Written question.** A colleague has written an encoder block. It agrees with the worked example of this lesson to 0.000001 in all eight entries, and she concludes that it is right. Name two bugs that it could still have and say why
# the example cannot show them. Then describe one single input (sizes, weights, gammas, numbers) that would show both, and say how you would judge the block's answer to it without a reference program. About 150 words.
#
# ---
#
# One point each:
#
# 1. **Two real blind spots:** any two of: the root of d_model for the root of d_k; heads split or merged by one reshape; gamma1 and beta1 in both norms (or swapped between them); sentences mixed; inputs changed in place; a wrong eps where the tolerance is looser than 0.000006.
# 2. **Why, from the example's properties:** one head (d_k = d_model, nothing to merge), gamma = 1 and beta = 0 in both norms, a batch of one sentence, one call only, entries of order one beside eps.
# 3. **One input for both:** two or more sentences of at least two tokens, at least two heads, different random gammas and betas, small tokens if eps is among the bugs. It must show the two bugs that were named.
# 4. **Judging without a reference:** a property that must hold: the sentence alone gives the same rows as in its batch; permuted tokens give permuted rows; the second call gives the same as the first; with silent branches a post-norm block returns the norm of the norm of x, computed by hand with the two gammas; or a hand computation for a tiny case. "Compare with a library" earns the point only with its settings (norm order, eps, biases).
#
# *Model answer.* Her block could merge its heads by one reshape: with one head there is nothing to merge, so the example cannot see it. It could also use gamma1 and beta1 in both norms: both gammas are 1 and both betas 0 there. I would take two sentences of three tokens,
# d_model 8, two heads, random weights, and two different random gammas and betas. For the heads I need no reference: if I swap two tokens of a sentence, the output rows must swap and keep their numbers, and with the wrong merge they do not. For the
# norms I set W_o, W2 and b2 to zero. Then the block must return L2(L1(x)), which I can compute for one row by hand, and which differs from L1(L1(x)) because the gammas differ.

# %% [markdown]
# ## Where you meet this in real models
#
# - The original Transformer, BERT (12 or 24 blocks, eps `1e-12`) and all-MiniLM are **post-norm**.
# - GPT-2 and most large language models since are **pre-norm** with one last norm; many of them use RMSNorm, which leaves out the mean.
# - "The paper's code" is not always the paper's order: tensor2tensor's `transformer_base` became pre-norm in its version 2. Look for the norm's place before you load weights.
# - GPT-J computes attention and FFN side by side from one normed input. Others scale the residual, as DeepNorm does: LayerNorm(alpha x + f(x)).
#
# ## Further reading
#
# - Vaswani et al., *Attention Is All You Need*, 2017, sections 3.1 to 3.3 and 5.4. The block, and dropout.
# - Xiong et al., *On Layer Normalization in the Transformer Architecture*, 2020. Post-norm against pre-norm, and warm-up.
# - Takase et al., *B2T Connection: Serving Stability and Performance in Deep Transformers*, 2022. Where post-norm ends better.
# - Press, Smith, Levy, *Improving Transformer Models by Reordering their Sublayers*, 2020. Other orders of attention and FFN.
# - Wang et al., *DeepNet: Scaling Transformers to 1,000 Layers*, 2022. DeepNorm.
# - Srivastava et al., *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*, 2014.
