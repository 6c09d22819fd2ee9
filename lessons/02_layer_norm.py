# %% [markdown]
# # 2 Layer norm vs batch norm
#
# *One token, its own statistics.*
#
# **After this lesson you can**
#
# - write layer norm and batch norm, and say for each output number which input numbers it depends on;
# - show with an experiment of your own why encoders for text use layer norm;
# - say what a norm does to a small change that passes through it, and what a stream without a norm does to attention;
# - prove from its printed numbers alone that a published example is wrong.
#
# **It builds on** lesson 0 (shapes, checks, hints) and on the add `x + f(x)` of lesson 1. You need the mean, the variance, and NumPy's axes with
# `keepdims`. No earlier code has to be pasted.
#
# **How long.** The core exercises take 60 to 90 minutes with the reading. Stretch exercises may be skipped: no core exercise needs them.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import check, data, figures, hint, own, quiz

figures.style()

# %% overview

# %% [markdown]
# ## Where the norm stands: post-norm or pre-norm
#
# A Transformer block has two sub-layers, attention and the feed-forward network (FFN). Call either of them `f`. Lesson 1 said: `f` only returns a
# change, and the change is added to the stream `x`. The norm can stand in two places:
#
# | | the new stream | what is normalised |
# |---|---|---|
# | **post-norm** | `LayerNorm(x + f(x))` | the stream itself, after every add |
# | **pre-norm** | `x + f(LayerNorm(x))` | only the copy that `f` reads |
#
# The Transformer paper of 2017 is post-norm. So is this course, wherever nothing else is said. The norm is the same function in both; you will
# write it once.

# %% explore="post_or_pre"
def draw_chain(ax, title, boxes, skip):
    """Boxes along an arrow, and the path around them, from box skip[0] to box skip[1]."""
    for i, label in enumerate(boxes):
        colour = figures.YELLOW if label == "norm" else "white"
        ax.text(i, 0, label, ha="center", va="center", bbox={"boxstyle": "round,pad=0.4", "fc": colour, "ec": figures.BLUE})
    for i in range(len(boxes) - 1):
        ax.annotate("", (i + 0.7, 0), (i + 0.3, 0), arrowprops={"arrowstyle": "->"})
    around = {"arrowstyle": "->", "color": figures.RED, "lw": 2, "connectionstyle": "arc3,rad=-0.35"}
    ax.annotate("", (skip[1], 0.22), (skip[0], 0.22), arrowprops=around)
    ax.set(title=title, xlim=(-0.5, len(boxes) - 0.5), ylim=(-0.6, 1.1))
    ax.axis("off")


fig, axes = plt.subplots(2, 1, figsize=(6.4, 3.2))
draw_chain(axes[0], "post-norm: every add is followed by a norm", ["x", "f", "+", "norm", "new x"], (0, 2))
draw_chain(axes[1], "pre-norm: nothing but the add stands on the path of x", ["x", "norm", "f", "+", "new x"], (0, 3))
figures.describe(
    fig,
    "Two chains of boxes: post-norm is x, f, plus, norm, new x, with a path for x around f into the plus; "
    "pre-norm is x, norm, f, plus, new x, with a path for x around the norm and f into the plus.",
)

# %% [markdown]
# ## 1. One row on a number line
#
# A token is one row of `d_model` numbers. After some adds the numbers of one row may be large, those of another small, and neither row need be
# centred around 0. Whatever reads the stream next would have to cope with all of them. Layer norm gives every row the same centre and the same
# spread. It uses only the numbers of that row: **one token, its own statistics**.
#
# With $d$ for `d_model`:
#
# $$\mu = \frac1d \sum_i x_i \qquad \sigma^2 = \frac1d \sum_i (x_i - \mu)^2 \qquad
# y_i = \gamma_i\,\frac{x_i - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta_i$$
#
# In words: from every number of the row, take the mean of the row away. Divide by the root of (variance plus a tiny eps). Then multiply feature
# $i$ by its own gamma, and add its own beta. The numbers before gamma and beta are called $\hat x$, "x-hat".
#
# Two details decide whether your numbers agree with everybody else's. The variance divides by $d$: the row is all there is, not a sample of something
# larger. And eps, here 0.00001, joins the variance *under* the root. It keeps a constant row from dividing 0 by 0.
#
# **By hand.** The row is (2, 0, -1, 3), eps is 0.
#
# - mean: 4 / 4 = 1
# - distances from the mean: 1, -1, -2, 2
# - their squares: 1, 1, 4, 4, so the variance is 10 / 4 = 2.5 and its root 1.581
# - distances divided by the root: 0.632, -0.632, -1.265, 1.265
#
# Then comes gamma. It has one number per feature, and the model learns them.

# %% [markdown] quiz="largest_after_gamma"
# **Predict.** The normalised row is (0.632, -0.632, -1.265, 1.265). Now gamma = (1, 1, 1, 0.2) multiplies it. Which of the four numbers is the
# largest afterwards?
#
# - [ ] the fourth, as before :: Its gamma is 0.2, so 1.265 becomes 0.253. The norm keeps the order of the numbers, but only before gamma and beta.
# - [x] the first :: Right: 0.632 stays, and 1.265 becomes 0.253. Order and spacing survive the norm, not gamma and beta.
# - [ ] they are all equal :: Equal spread is what the norm gives to whole rows. Inside a row the numbers stay different.

# %% explore="number_line"
line = data("number_line")
rows = [("x", line["row"]), ("x-hat", line["normalised"]), ("gamma times x-hat", line["scaled"])]
fig, ax = plt.subplots(figsize=(6.4, 3.2))
for height, (label, row) in zip((2, 1, 0), rows):
    ax.axhline(height, color="lightgrey", zorder=0)
    for i, (value, colour) in enumerate(zip(row, (figures.BLUE, figures.ORANGE, figures.GREEN, figures.PURPLE))):
        ax.plot(value, height, "o", ms=11, color=colour)
        ax.annotate(f"{i + 1}", (value, height), (0, 9), textcoords="offset points", ha="center")
ax.set(yticks=[2, 1, 0], yticklabels=[label for label, _ in rows], ylim=(-0.5, 2.6), xlabel="value (no unit)")
ax.set_title("Features 1 to 4 of one token, gamma = (1, 1, 1, 0.2)")
figures.describe(
    fig,
    "Three number lines: the row 2, 0, -1, 3 becomes 0.63, -0.63, -1.26, 1.26 in the same order and proportions, now around 0, "
    "and with gamma 0.2 on feature 4 it moves from the right end to 0.25, left of feature 1.",
)

# %% [markdown]
# The first step, from x to x-hat, moves and stretches the whole line: order and proportions stay. The second step treats every feature by itself. If
# you like, play with it:

# %% explore="number_line_slider"
from ipywidgets import FloatSlider, interact


@interact(gamma=FloatSlider(1, min=-2, max=2, step=0.1), beta=FloatSlider(0, min=-2, max=2, step=0.1))
def show_feature_four(gamma, beta):
    """Feature 4 alone gets this gamma and beta; the others keep 1 and 0."""
    xhat = data("number_line")["normalised"]
    y = np.append(xhat[:3], gamma * xhat[3] + beta)
    print("x-hat", xhat.round(2), "   y", y.round(2), "   order of the features in y:", np.argsort(y) + 1)

# %% [markdown]
# Now write it, for a single token and for any stack of tokens at once.

# %% exercise="layer_norm"

# %% [markdown]
# What your function forgets is as telling as what it keeps. Add 100 to a whole row, or multiply the row by 10, and see what comes out. The last line
# shows where eps bites: a row of variance v has the variance v / (v + eps) after the norm. Where v is about as small as eps, that is not 1 any more.

# %% explore="what_the_norm_forgets"
your_norm = own("layer_norm")
if your_norm is None:
    print("Run the check of layer_norm first. Once it passes, this cell uses your function.")
else:
    row = np.array([2.0, 0.0, -1.0, 3.0])
    for name, x in [("the row", row), ("100 added", row + 100), ("times 10", 10 * row), ("divided by 1000", row / 1000)]:
        y = your_norm(x, np.ones(4), np.zeros(4))
        print(f"{name:16} {y.round(3)}   variance {y.var():.3f}")

# %% [markdown]
# Divided by 1000, the row has the variance 0.0000025. The norm makes 0.0000025 / 0.0000125 = 0.2 of it.
#
# ## 2. The same subtraction along another axis
#
# Batch norm is older and comes from images. It also takes a mean away and divides by a root. But it asks another question: how large is *this feature*
# across everything in the batch? Which numbers share a mean is the only difference, and it is a large one. The figure shows the two, and two norms
# more: instance norm, which takes one feature of one sentence, and a norm that takes all numbers at once.

# %% explore="which_numbers_share_a_mean"
sentence, token, feature = np.indices((3, 3, 4))
groups = {
    "layer norm": (sentence == 0) & (token == 1),
    "batch norm": feature == 2,
    "instance norm": (sentence == 0) & (feature == 2),
    "all numbers": feature >= 0,
}
fig, axes = plt.subplots(1, 4, figsize=(7.2, 3.6), sharey=True)
for ax, (name, group) in zip(axes, groups.items()):
    for i, picture in enumerate(group.astype(float)):  # one block of tokens per sentence, a gap between them
        ax.pcolormesh(np.arange(5), np.arange(4) + 4 * i, picture, cmap="Blues", vmin=0, vmax=1.4, edgecolors="grey", lw=0.7)
    ax.plot(2.5, 1.5, "*", ms=13, color=figures.ORANGE)
    ax.set(title=name, xticks=np.arange(4) + 0.5, xticklabels=[1, 2, 3, 4], xlabel="feature")
    ax.grid(False)
axes[0].set(yticks=[1.5, 5.5, 9.5], yticklabels=["sentence 1", "sentence 2", "sentence 3"], ylabel="tokens, three per sentence")
axes[0].invert_yaxis()
figures.describe(
    fig,
    "Four grids of nine tokens by four features, dark where numbers share the mean of the starred one: in layer norm its own row, "
    "in batch norm its whole column, in instance norm its column within its sentence, in the last grid all numbers.",
)

# %% [markdown]
# For one feature, with the mean $\mu$ and the variance $\sigma^2$ taken over all $n$ rows of the batch (for an array (batch, seq, d_model) that is
# batch times seq rows):
#
# $$y = \gamma\,\frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta$$
#
# In words: from every number of the column, take the mean of the column away; divide; scale; shift. The same sentence as before, with "column" for
# "row".
#
# **But that is only training.** In use a single sentence may arrive, and there is no batch to average over. So batch norm keeps two more arrays, a
# *running* mean and a *running* variance. Every training batch moves them a little:
#
# $$\text{running} \leftarrow (1 - \text{momentum}) \cdot \text{running} + \text{momentum} \cdot \text{batch}$$
#
# In words: keep nine tenths of the old value and add one tenth of the batch's (for momentum = 0.1). In use the running values normalise, and do not move.
# One layer, two different functions.
#
# One more convention, the one of the common libraries: the variance that normalises divides by $n$, the variance that goes into the running value by
# $n - 1$. The first describes this batch, the second estimates what other batches will look like.
#
# **By hand.** Two rows, (1, 2) and (3, 6); eps is 0; the running mean starts at 0, the running variance at 1.
#
# - feature 1: mean 2, variance 1 (divided by n), so 1 and 3 become -1 and 1
# - feature 2: mean 4, variance 4, so 2 and 6 become -1 and 1
# - running mean: 0.9 · 0 + 0.1 · 2 = 0.2 and 0.1 · 4 = 0.4
# - running variance: divided by n - 1 the variances are 2 and 8, so 0.9 + 0.2 = 1.1 and 0.9 + 0.8 = 1.7

# %% explore="running_mean_follows"
steps = data("running_mean")
fig, ax = plt.subplots()
number = np.arange(1, len(steps["batch"]) + 1)
ax.plot(number, steps["batch"], "o", ms=4, color=figures.SKY, label="mean of this batch (8 rows)")
ax.plot(number, steps["running"], color=figures.BLUE, lw=2.5, label="running mean")
ax.axhline(steps["true"], color=figures.BLACK, ls="--", lw=1, label="mean of all data")
ax.set(xlabel="training batch (count)", ylabel="mean of one feature (no unit)", title="What batch norm remembers for later use")
fig.legend(loc="outside lower center", ncols=3, fontsize=9)
figures.describe(
    fig,
    "Over 60 training batches the batch means scatter between 1.4 and 4.9 around 3; the running mean starts at 0, climbs and stays near 3.",
)

# %% exercise="batch_norm"

# %% [markdown] quiz="batch_of_one"
# **Predict.** In training a batch arrives that holds a single token. What does batch norm return for it?
#
# - [ ] the token itself :: For that, the mean would have to be 0 and the variance 1. The mean of one number is the number itself.
# - [ ] an error, the variance does not exist :: The variance that divides by n exists: it is 0. Only the one that divides by n - 1 does not, and that one
#   goes into the running value.
# - [x] exactly beta, whatever the token was :: Right: every number is its own mean, so nothing is left after the subtraction. What the token said is gone.
# - [ ] the running mean :: The running values are read in use only.

# %% explore="train_use_gap"
gap = data("batch_size_gap")
fig, ax = plt.subplots()
ax.plot(gap["size"], gap["gap"], "o-")
ax.set_xscale("log", base=2)
ax.set(xlabel="batch size (rows)", ylabel="typical difference (no unit)", ylim=(0, 1.05))
ax.set_xticks(gap["size"], gap["size"])
ax.set_title("Batch norm: the same number in training and in use")
figures.describe(
    fig,
    "The typical difference between a row's output in training and in use falls from 1.0 for a batch of one row to 0.44 for 8 rows "
    "and 0.08 for 256 rows.",
)

# %% [markdown]
# The figure compares the same row's output in training and in use (gamma 1, beta 0). With one row the typical difference is 1.0, as large as the numbers themselves: training returns beta, whatever comes in. With 8 rows the difference is
# still 0.44, with 256 rows 0.08. A layer norm has no such curve. It does the same in training and in use.
#
# ## 3. Padding enters the mean
#
# Sentences have different lengths. To stack them in one array, short ones are filled up with *padding*: places that hold no word. A mean over the batch
# that counts these places is a mean over words and filler. A `mask` says which places are real, and the sums must run over these only:
#
# $$\mu = \frac{1}{n} \sum_{\text{real tokens}} x \qquad \sigma^2 = \frac{1}{n} \sum_{\text{real tokens}} (x - \mu)^2$$
#
# In words: add up the real tokens of the whole batch and divide by how many *real tokens* there are; then do the same with the squared distances. Every
# real token counts the same, whether its sentence is long or short.
#
# **By hand.** One feature, two sentences: (1, 3) and (5, padding).
#
# - real tokens: 1, 3, 5, so the mean is 9 / 3 = 3
# - squared distances: 4, 0, 4, so the variance is 8 / 3 = 2.667
# - with the padding counted as a 0, the mean would be 9 / 4 = 2.25

# %% explore="padding_drift"
drift = data("padding_drift")
fig, ax = plt.subplots()
ax.plot(100 * drift["share"], drift["counted"], "o-", color=figures.RED, label="padding counted as zeros")
ax.plot(100 * drift["share"], drift["masked"], "s-", color=figures.BLUE, label="real tokens only")
ax.set(xlabel="padding among all places (%)", ylabel="mean of one feature (no unit)", ylim=(0, 2.3))
ax.set_title("The same 64 words, more and more filler")
ax.legend()
figures.describe(
    fig,
    "The mean of a feature over the same 64 real tokens falls in a straight line from 2.0 without padding to 0.2 at 90 percent "
    "padding when the padding is counted, and stays at 2.0 when it is not.",
)

# %% [markdown]
# No word changed, yet the mean fell from 2.0 to 0.2. How much filler stands beside a sentence depends on the longest sentence in its batch: on strangers.
# Write the statistics that a batch norm for text would need. The padding may hold anything, even `nan`.

# %% exercise="masked_feature_stats"

# %% [markdown]
# With a mask the filler is out. The neighbours are still in: each sentence is normalised by what happens to stand in the same batch. Section 5 measures
# that. First, a look at what a norm does to whatever passes through it.
#
# ## 4. What the norm does to a small change (stretch)
#
# Move one input number a little. How do the outputs move? The answer is a matrix, the *Jacobian*: entry $[i, j]$ says how fast output $i$
# grows when input $j$ does. For layer norm with gamma = 1 and beta = 0:
#
# $$J = \frac{1}{\sigma} \left( I - \frac{1}{d}\, \mathbf 1 \mathbf 1^\top - \frac{1}{d}\, \hat x\, \hat x^\top \right)
# \qquad \sigma = \sqrt{\text{variance} + \varepsilon}$$
#
# In words: start with the identity matrix. Take away a matrix whose entries are all 1/d, because the mean follows every input. Take away the products of x-hat
# with itself, divided by d, because sigma follows too. Divide by sigma.
#
# This matters in **post-norm**: there the norm stands on the stream. So every small change of the stream passes through such a matrix in every layer, and so does
# every gradient on its way back. In **pre-norm** the matrix stands inside the branch, and the path of x is free of it.
#
# **By hand.** The row (2, 0, -1, 3) again: sigma is 1.581, x-hat is (0.632, -0.632, -1.265, 1.265). The first row of the bracket:
#
# - entry 1: 1 - 0.25 - 0.632 · 0.632 / 4 = 0.65, divided by sigma: 0.411
# - entry 2: 0 - 0.25 + 0.632 · 0.632 / 4 = -0.15, divided by sigma: -0.095
# - entries 3 and 4, in the same way: -0.032 and -0.285
#
# With eps = 0, two directions never come through: adding the same number to all features (the mean removes it), and stretching x-hat (the division removes it). A matrix
# that deletes directions has *singular values* of 0. They are the factors by which a matrix stretches its main directions.

# %% explore="singular_values"
values = data("norm_singular_values")
place = np.arange(1, 5)
fig, ax = plt.subplots()
ax.bar(place - 0.2, values["layer_norm"], 0.38, color=figures.BLUE, label="layer norm")
ax.bar(place + 0.2, values["rms_norm"], 0.38, color=figures.ORANGE, hatch="//", label="RMSNorm")
for offset, key in ((-0.2, "layer_norm"), (0.2, "rms_norm")):
    for x, value in zip(place + offset, values[key]):
        ax.annotate(f"{value:.3f}", (x, value), (0, 3), textcoords="offset points", ha="center", fontsize=9)
ax.set(xticks=place, xlabel="singular value, largest first", ylabel="stretch factor (no unit)", ylim=(0, 0.8))
ax.set_title("Which directions pass a norm at (2, 0, -1, 3), eps = 0")
ax.legend()
figures.describe(
    fig,
    "Bars of the four singular values of two Jacobians: 0.632, 0.632, 0, 0 for layer norm; 0.535 three times, then 0 for RMSNorm.",
)

# %% [markdown]
# Layer norm lets $d - 2$ directions through, all stretched by 1/sigma = 0.632, and deletes two. RMSNorm, which leaves the mean in and divides by the root of
# the mean square, deletes one only. Large inputs mean a large sigma, and so a small stretch: the norm turns loud tokens down.

# %% exercise="layer_norm_jacobian"

# %% [markdown]
# ## 5. An experiment: does a sentence change its neighbours?

# %% [markdown] quiz="why_not_batch_norm"
# **Predict.** Why do encoders for text use layer norm and not batch norm?
#
# - [ ] batch norm cannot run on a single sentence, when text is generated :: It can: in use it reads its running values, and one sentence is enough. The trouble
#   is that training and use then compute different things.
# - [ ] layer norm is cheaper :: Both cost about the same: a mean, a variance, a division.
# - [x] batch norm's statistics mix sentences, change with batch size, length and padding, and differ between training and use :: Right. Each of the three can be
#   measured; the next exercise measures the first.
# - [ ] batch norm would need a fixed sentence length :: Not if it averages over batch and tokens, as in 2.2. Its running values have one number per feature.

# %% [markdown]
# You do not have to believe an explanation that you can test. The experiment: run the norm on a batch. Replace one sentence, $j$, by another one. Run the norm
# again. Did the output of any *other* sentence move?
#
# $$\text{leak} = \max_{b \ne j}\, \bigl|\, \text{norm}(X')_b - \text{norm}(X)_b \,\bigr|$$
#
# In words: the largest absolute difference, over all numbers of all sentences but $j$, between the output with the new sentence and the output with the old one.
#
# **By hand.** Three sentences of one token: (1, 2), (3, 6) and (2, 4). The third becomes (8, 4).
#
# - Layer norm: rows 1 and 2 are computed from themselves. Nothing moves; the leak is 0.
# - Batch norm, feature 1: 1, 3, 2 has mean 2 and variance 2/3, so rows 1 and 2 give -1.225 and 1.225. With 1, 3, 8 the mean is 4 and the variance 26/3, and
#   they give -1.019 and -0.340.
# - Feature 2 has not changed. The largest change is that of row 2, from 1.225 to -0.340: the leak is 1.564.

# %% explore="leak_maps"
maps = data("leak_maps")
fig, axes = plt.subplots(1, 2, figsize=(6.4, 3), sharey=True)
for ax, key, title in zip(axes, ("layer_norm", "batch_norm"), ("layer norm", "batch norm, in training")):
    image = ax.imshow(maps[key], vmin=0, vmax=4.1, aspect="auto")
    ax.set(title=title, xlabel="token", xticks=range(6), xticklabels=range(1, 7), yticks=range(4), yticklabels=range(1, 5))
    ax.grid(False)
axes[0].set_ylabel("sentence (2 was replaced)")
fig.colorbar(image, ax=axes, label="largest change of the token")
figures.describe(
    fig,
    "Two maps of four sentences by six tokens after sentence 2 was replaced: with layer norm only sentence 2 changes, with batch "
    "norm every token of every sentence does, by up to 1.5 outside sentence 2.",
)

# %% [markdown]
# Write the experiment so that it works for *any* norm. The check will hand you norms that you have not seen; one of them leaks into a single sentence only.

# %% exercise="leak"

# %% [markdown]
# Now let your own functions meet.

# %% explore="your_leak"
yours = {name: own(name) for name in ("leak", "layer_norm", "batch_norm")}
if None in yours.values():
    print("Run the checks of layer_norm, batch_norm and leak first. Once all three pass, this cell uses your functions.")
else:
    rng = np.random.default_rng(5)
    one, zero = np.ones(8), np.zeros(8)
    norms = {
        "layer norm": lambda X: yours["layer_norm"](X, one, zero),
        "batch norm": lambda X: yours["batch_norm"](X, one, zero, zero, one, True)[0],
    }
    for batch in (2, 8, 32, 128):
        X, new = rng.normal(size=(batch, 5, 8)), rng.normal(1.0, 2.0, size=(5, 8))
        leaks = [f"{name} {yours['leak'](norm, X, 0, new):.3f}" for name, norm in norms.items()]
        print(f"{batch:4} sentences:", "   ".join(leaks))

# %% [markdown]
# A larger batch dilutes the leak. It does not stop it.
#
# ## 6. A stream that grows, and attention that stops mixing (stretch)
#
# What if there is no norm at all? Every add makes the stream a little larger. The figure shows three stacks with the same random weights
# (d_model 64, 8 heads, 12 tokens).

# %% explore="stream_grows"
growth = data("stream_growth")
fig, ax = plt.subplots()
for kind, mark in (("no norm", "-"), ("pre-norm", "--"), ("post-norm", ":")):
    ax.plot(growth[f"{kind}: size"], mark, lw=2.5, label=kind)
ax.set_yscale("log")
ax.set(xlabel="depth (blocks)", ylabel="root mean square of the stream", xticks=range(0, 25, 4), title="How large the stream gets")
ax.legend()
figures.describe(
    fig,
    "On a log axis over 24 blocks: without a norm the stream grows from 1 to about 280,000; in pre-norm it grows to 5.6; in post-norm it stays at 1.",
)

# %% [markdown]
# In post-norm the stream is normalised after every add, so it stays at 1. In **pre-norm** it grows, here to 5.6 after 24 blocks, but what a sub-layer reads is
# normalised. Without a norm it grows beyond all bounds, and attention reads that.
#
# Attention, which you will write in lesson 5, takes a weighted mean over the tokens. The weights come from scores by the *softmax*: the weight of token $i$ is
# proportional to $e^{s_i}$. A score is the product of a *query* and a *key*, two vectors, and each of the two is a token of the stream times a matrix.

# %% [markdown] quiz="doubled_stream"
# **Predict.** There is no norm before attention, and queries and keys have no biases. The whole stream doubles. By which factor do the scores grow?
#
# - [ ] by 2 :: That would be so if only the query or only the key doubled. Both are computed from the stream.
# - [x] by 4 :: Right: the query doubles, the key doubles, and the score is their product.
# - [ ] by the square root of 2 :: The score is divided by the root of d_k, but that number does not change when the stream does.
# - [ ] not at all :: That is what a norm in front of attention would achieve: it gives the same output for the doubled stream, up to eps.

# %% [markdown]
# Multiply all scores by $f$, and every weight changes like this:
#
# $$p_i' = \frac{p_i^{\,f}}{\sum_k p_k^{\,f}}$$
#
# In words: raise every weight to the power $f$, then divide by the sum, so that they add up to 1 again. (Because $e^{f s}$ is $(e^s)^f$.)
#
# **By hand.** The weights (0.8, 0.2), f = 2: the squares are 0.64 and 0.04, their sum is 0.68, and the new weights are 0.941 and 0.059. The large one got larger.
#
# You may have read that when a stream doubles, a weight of 0.60 turns into 0.96. Here is a row with 0.60 in it:

# %% explore="sharper_and_sharper"
row = data("sharpened_row")
fig, ax = plt.subplots()
for weights, start, mark in zip(row["weights"].T, (0.60, 0.18, 0.12, 0.06, 0.04), ("-", "--", "-.", ":", (0, (1, 3)))):
    ax.plot(row["f"], weights, ls=mark, lw=2, label=f"{start:.2f}")
ax.plot([3, 4], [0.965, 0.990], "o", color=figures.BLACK)
ax.annotate("f = 3: 0.965", (3, 0.965), (2.35, 0.80))
ax.annotate("f = 4: 0.990", (4, 0.990), (3.9, 0.88))
ax.set(xlabel="factor f on all scores", ylabel="attention weight", title="One row of attention weights", ylim=(0, 1.05))
ax.legend(title="weight at f = 1", loc="center right")
figures.describe(
    fig,
    "Five attention weights against the factor f: all are 0.2 at f = 0, then the weight 0.60 rises to 0.965 at f = 3 and 0.990 at "
    "f = 4, and the others fall to almost 0.",
)

# %% [markdown]
# 0.96 belongs to scores about three times as large, so to a stream 1.7 times as large (the root of 3). A doubled stream has scores four times as large, and the
# weight becomes 0.990. After a layer norm the doubled stream changes nothing: f = 1.
#
# Your function must survive what happens in a deep stack without norms: factors in the thousands.

# %% exercise="sharpen"

# %% [markdown]
# Entropy, minus the sum of p · log p, measures how evenly a row of weights is spread; with the natural logarithm its unit is the nat. For 12 tokens it is 2.48 nats when all weights are equal, and 0 when one token gets everything.

# %% explore="attention_stops_mixing"
growth = data("stream_growth")
fig, ax = plt.subplots()
depth = np.arange(1, 13)
ax.axhline(growth["even"], color=figures.BLACK, lw=1, ls=":", label="all weights equal")
ax.plot(depth, growth["pre-norm: entropy"][:12], "s--", color=figures.ORANGE, label="pre-norm")
ax.plot(depth, growth["no norm: entropy"][:12], "o-", color=figures.BLUE, label="no norm")
ax.set(xlabel="block (count)", ylabel="entropy of attention (nats)", xticks=depth, ylim=(-0.05, 2.8))
ax.set_title("A growing stream ends in attention to one token")
ax.legend(loc="center right")
figures.describe(
    fig,
    "The mean entropy of the attention weights falls from 2.15 to 0.00 nats over 12 blocks without a norm, and stays between 2.1 and "
    "2.4 in pre-norm.",
)

# %% [markdown]
# Without a norm, the entropy falls from 2.15 to 0.00 nats within 12 blocks: each token copies one other token, and the softmax passes almost no gradient any more. In
# pre-norm it is 2.32 at block 12. (In post-norm the stream keeps its size, so the scores do not grow there either.)
#
# ## 7. The backward pass, three terms (stretch)
#
# Training needs the gradient of the loss with respect to everything that goes in. Let `dy` be the gradient with respect to the output. With $g = dy \cdot
# \gamma$, entry by entry:
#
# $$dx = \frac{1}{\sigma} \Bigl( g - \operatorname{mean}(g) - \hat x \cdot \operatorname{mean}(g\, \hat x) \Bigr)
# \qquad d\gamma = \sum_{\text{tokens}} dy\, \hat x \qquad d\beta = \sum_{\text{tokens}} dy$$
#
# In words: the gradient meets gamma first, because gamma came last on the way forward. From $g$ take its mean away. Take away the part of it that points along
# x-hat. Divide by sigma. The two means run over the features of one token. gamma and beta are shared by all tokens, so their gradients are sums over all tokens
# of the batch.
#
# It is the matrix of section 4, applied to $g$ without ever being built.
#
# **By hand.** x is (2, 0, -1, 3), gamma is 1, eps is 0, and dy is (1, 0, 0, 0).
#
# - mean of g: 0.25, which leaves (0.75, -0.25, -0.25, -0.25)
# - mean of g times x-hat: 0.632 / 4 = 0.158; times x-hat that is (0.1, -0.1, -0.2, 0.2), which leaves (0.65, -0.15, -0.05, -0.45)
# - divided by 1.581: (0.411, -0.095, -0.032, -0.285), the row of the matrix that you know
# - with this one token alone, dgamma is dy times x-hat, (0.632, 0, 0, 0), and dbeta is dy itself

# %% explore="three_terms"
terms = data("backward_terms")
panels = [("g", "g"), ("without_mean", "minus its mean"), ("without_both", "minus the part\nalong x-hat"), ("dx", "divided by sigma")]
fig, axes = plt.subplots(1, 4, figsize=(7.6, 2.9), sharey=True)
for ax, (key, title) in zip(axes, panels):
    ax.bar(range(1, 5), terms[key], color=figures.BLUE)
    ax.axhline(0, color=figures.BLACK, lw=0.8)
    ax.set(xlabel="feature", xticks=range(1, 5), ylim=(-0.6, 1.1))
    ax.set_title(title, fontsize=10)
axes[0].set_ylabel("gradient (no unit)")
figures.describe(
    fig,
    "Four bar charts of the four features, step by step: g is 1, 0, 0, 0; minus its mean 0.75, -0.25, -0.25, -0.25; minus the part along "
    "x-hat 0.65, -0.15, -0.05, -0.45; divided by sigma 0.41, -0.09, -0.03, -0.28.",
)

# %% exercise="layer_norm_backward"

# %% [markdown]
# ## 8. The error hunt
#
# This course follows one small example through several lessons: two tokens, d_model = 4, one head, a **post-norm** block with gamma = 1 and beta = 0. It was
# published on a web page, printed to two decimals. The attention output was assumed there. Then:
#
# | | token 1 | token 2 |
# |---|---|---|
# | x + attention | 1.12, 0.42, -0.35, 0.17 | 0.39, -0.15, 0.91, -0.42 |
# | X' = LayerNorm of that | 1.54, 0.16, -1.36, -0.34 | 0.40, -0.52, 1.38, -1.26 |
# | X' + FFN | 1.62, 0.04, -1.31, -0.24 | 0.34, -0.43, 1.35, -1.19 |
# | output = LayerNorm of that | 1.56, 0.10, -1.21, -0.18 | 0.38, -0.46, 1.40, -1.22 |
#
# Four of these rows are printed as outputs of a layer norm. Whatever went in (numbers that are not all alike), such a row has mean 0 and variance 1. So it can be questioned without
# recomputing anything:

# %% explore="question_the_rows"
printed = {
    "X', token 1": [1.54, 0.16, -1.36, -0.34],
    "X', token 2": [0.40, -0.52, 1.38, -1.26],
    "output, token 1": [1.56, 0.10, -1.21, -0.18],
    "output, token 2": [0.38, -0.46, 1.40, -1.22],
}
for name, row in printed.items():
    print(f"{name:16} mean {abs(np.mean(row)):.4f}   variance {np.var(row):.4f}")

# %% [markdown]
# The output rows have means of 0.0675 and 0.0250, the X' rows variances of 1.0906 and 0.9806. But be fair: the numbers were rounded. How much can rounding
# explain?
#
# A number printed as 1.54 stands for anything from 1.535 to 1.545: half a unit of its last place to either side. Call that half unit $h$ (here 0.005). Then
#
# $$|\,\text{mean}\,| \le h \qquad\text{and}\qquad \text{smallest possible mean of squares} \le 1 \le \text{largest possible mean of squares}$$
#
# In words: if every entry may move by h, their mean may move by h and no further, so the printed mean must lie within h of 0. The mean of the squares may move
# further. It is smallest when every entry moves towards 0 by h (or to 0, if it is closer than h), and largest when every entry moves away from 0 by h. Between these two must lie 1. (For numbers
# with mean 0, the mean of the squares is the variance.)
#
# **By hand.** X', token 1: (1.54, 0.16, -1.36, -0.34).
#
# - mean: 0.0000, within 0.005. The mean does not convict it.
# - entries moved towards 0: 1.535, 0.155, -1.355, -0.335, mean of squares 1.0821
# - entries moved away from 0: mean of squares 1.0991
# - 1 is not between 1.0821 and 1.0991. No rounding explains this row.

# %% explore="rows_on_trial"
trial = data("printed_rows")
names = ["X', token 1", "X', token 2", "output, token 1", "output, token 2"]
fig, ax = plt.subplots(figsize=(6.4, 4))
for name, mean, variance, reach, colour in zip(
    names, trial["mean"], trial["variance"], trial["variance_reach"], (figures.BLUE, figures.ORANGE, figures.GREEN, figures.PURPLE)
):
    corner, width, height = (mean - trial["mean_reach"], variance - reach), 2 * trial["mean_reach"], 2 * reach
    ax.add_patch(plt.Rectangle(corner, width, height, fc=colour, ec=figures.BLACK, alpha=0.7))
    ax.annotate(name, (mean + trial["mean_reach"], variance), (6, -4), textcoords="offset points")
ax.plot(0, 1, "*", ms=16, color=figures.BLACK)
ax.annotate("every true row: mean 0, variance 1", (0, 1), (12, -4), textcoords="offset points")
ax.set(xlabel="mean of the row (no unit)", ylabel="variance of the row (no unit)", xlim=(-0.02, 0.11), ylim=(0.92, 1.12))
ax.set_title("What rounding to two places can explain: the boxes")
figures.describe(
    fig,
    "Mean and variance of the four printed rows as boxes as large as rounding allows: none touches the star at mean 0, variance 1; "
    "one lies above it, one just below, and two to its right and below.",
)

# %% [markdown]
# Write the detector: given printed rows and the number of decimals, which rows could be true?

# %% exercise="could_be_layer_norm"

# %% [markdown]
# **The right numbers.** Recomputed, with eps = 0.00001 and without rounding in between, the example gives:
#
# | | token 1 | token 2 |
# |---|---|---|
# | sigma | 0.5291 (printed: 0.507) | 0.5113 |
# | X' | 1.4742, 0.1512, -1.3041, -0.3213 | 0.4058, -0.6502, 1.4227, -1.1783 |
# | X' + FFN | 1.5542, 0.0312, -1.2541, -0.2213 | 0.3458, -0.5602, 1.3927, -1.1083 |
# | output | 1.5200, 0.0037, -1.2760, -0.2477 | 0.3460, -0.6090, 1.4496, -1.1866 |
#
# Seventeen printed numbers are wrong: sigma of token 1, all eight entries of X', and all eight of the output. The sums X' + FFN were added correctly, from
# the wrong X'. The first row of X' is what sigma = 0.507 gives, a slip in arithmetic. No convention explains the other rows: not d - 1, not another eps, not
# statistics over both tokens. A program that is right differs from the printed rows by more than 0.005 in all 16 entries.
#
# So the checks of this course compare with the right numbers, and say so. When your program and a page disagree, ask both for evidence.
#
# ## 9. Write the test yourself (stretch)
#
# A wrong norm gives reasonable numbers on most inputs. That is why wrong norms live so long in published code. Take the most common slip, a variance that
# divides by d - 1. Then every output is too small by the factor
#
# $$\sqrt{\frac{d - 1}{d}}$$
#
# In words: the root of (d - 1) over d, which is close to 1 for wide rows. **By hand:** for d = 2 it is the root of 1/2, 0.707, so the row (1, -1) becomes (0.707,
# -0.707). For d = 4 it is 0.866: 13.4 % too small. For d = 512 it is 0.999: 0.1 % too small. Whoever tests with 512 features and a loose tolerance sees nothing.

# %% explore="d_minus_1_by_width"
slip = data("d_minus_1_error")
fig, ax = plt.subplots()
ax.loglog(slip["width"], 100 * slip["by_width"], "o-", base=2)
ax.set_yscale("log", base=10)
ax.set(xlabel="d_model (numbers per token)", ylabel="outputs too small by (%)")
ax.set_xticks(slip["width"], slip["width"])
ax.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
ax.set_title("The cost of dividing by d - 1")
figures.describe(
    fig,
    "On log axes the error falls in a straight line from 29 percent at d_model 2 over 13.4 percent at 4 to 0.1 percent at 512.",
)

# %% [markdown]
# Does a small slip add up over many layers? In a **post-norm** stack this one does not: the next norm rescales what the last one shrank.

# %% explore="d_minus_1_by_depth"
slip = data("d_minus_1_error")
fig, ax = plt.subplots()
ax.plot(range(1, 25), 100 * slip["by_depth"], "o-")
ax.set(xlabel="depth (blocks)", ylabel="relative error of the stream (%)", xticks=range(0, 25, 4), ylim=(0, 1.2))
ax.set_title("d - 1 in every norm of a post-norm stack, d_model = 64")
figures.describe(fig, "The relative error of the stream stays between 0.78 and 0.89 percent over 24 blocks; it does not grow.")

# %% [markdown]
# To expose a wrong norm, go where its divisor and the right one part ways. Here are four wrong norms, in words. The right one is yours, with gamma = 1, beta =
# 0 and eps = 0.00001.
#
# | key | the wrong norm |
# |---|---|
# | `d_minus_1` | the variance divides by d - 1 |
# | `eps_outside` | divides by (root of the variance) + eps |
# | `all_tokens` | all tokens of the input share one mean and one variance |
# | `mean_of_squares` | the variance is mean of x² minus square of the mean, in float64; a negative one counts as 0 |
#
# For each, give an input on which its answer and the right one differ by more than 0.1 somewhere.

# %% exercise="breaking_inputs"

# %% [markdown]
# ## What you now know
#
# - Layer norm normalises each token by its own numbers: the same in training and in use, alone and in a batch.
# - Batch norm normalises each feature over the batch. Neighbours, batch size and padding enter, and in use it becomes another function.
# - Order and spacing survive the norm, not gamma and beta. The variance afterwards is v / (v + eps).
# - Of a small change the norm deletes two directions, and it divides the rest by sigma. In post-norm that happens on the stream itself; in pre-norm inside the branch only.
# - A stream without norms grows, and attention ends up looking at one token.
# - A printed row can be convicted by its mean and its variance alone.

# %% [markdown] written="against_batch_norm" points=4
# **In your own words.** A colleague wants to put batch norm into the encoder of a translation model: "It is the same formula, and it works for images."
# Answer in about 150 words. Give three different reasons against it, each with a number or an experiment of this lesson. Then name one argument against batch
# norm that you have read somewhere and that does not hold, and say why not.
#
# ---
#
# **Rubric** (4 points)
#
# - 1 point for each of three different reasons, up to 3, each with evidence. Half a point for a reason without evidence. Reasons that count:
#   - sentences of a batch change each other (leak above 0 in 2.5; 1.564 in the worked case; layer norm 0);
#   - training and use differ (typical difference 1.0 for a batch of one row, 0.44 for 8 rows; a training batch of one token gives exactly beta);
#   - padding enters the statistics, or a mask is needed (mean of a feature from 2.0 to 0.2 at 90 % padding; 2.25 for 3 in the worked case);
#   - the statistics depend on the batch's composition, such as length or topic of its sentences (batch means from 1.4 to 4.9 around 3 with 8 rows).
# - 1 point for an argument that does not hold, with the reason: "it cannot run on one sentence" (in use it reads running values); "it needs a fixed length" (it
#   averages over batch and tokens); "it is more expensive" (about the same work). Half a point without the reason.
# - Confusing the axes (which numbers share a mean) costs one point, once.
#
# **Model answer.** In training, batch norm normalises a feature by its mean over all sentences of the batch. So replacing one sentence moves the others: in our
# experiment by 1.564, with layer norm by 0. Second, in use it reads running values instead, and becomes another function: with 8 rows per batch the same
# number differs typically by 0.44 between training and use. Third, padding counts unless it is masked: the mean of a feature fell from 2.0 to 0.2 without any
# word changing. It is not true, though, that batch norm cannot run on a single sentence. In use it needs no batch, only its running mean and variance.

# %% [markdown]
# ## Where this shows up in real models
#
# - **eps is not a law.** Here it is `1e-5`. tensor2tensor, the code that came with the Transformer paper, uses `1e-6`, BERT `1e-12`. State it when you
#   compare numbers.
# - **Post-norm:** the Transformer of 2017, BERT, and sentence encoders such as all-MiniLM. **Pre-norm:** GPT-2 and most large language models since. Even
#   tensor2tensor's standard Transformer became pre-norm in its second version, so "the paper's code" is not always post-norm.
# - **RMSNorm:** many recent models drop the mean and beta and keep only the division by the root mean square, as in section 4.
# - **gamma does learn something.** In a released English-German model the gammas of one layer run from 0.113 to 1.997, with a mean of 1.167.
# - **Batch norm** is at home in image models, where a batch holds many pixels of every feature.
#
# ## Further reading
#
# - Ba, Kiros and Hinton (2016), *Layer Normalization*, arXiv:1607.06450.
# - Ioffe and Szegedy (2015), *Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift*, arXiv:1502.03167.
# - Vaswani and others (2017), *Attention Is All You Need*, arXiv:1706.03762. Post-norm.
# - Xiong and others (2020), *On Layer Normalization in the Transformer Architecture*, arXiv:2002.04745. Post-norm against pre-norm, and the warm-up.
# - Zhang and Sennrich (2019), *Root Mean Square Layer Normalization*, arXiv:1910.07467.
# - Shen and others (2020), *PowerNorm: Rethinking Batch Normalization in Transformers*, arXiv:2003.07845. How much the batch statistics of text vary.
# - Ulyanov, Vedaldi and Lempitsky (2016), *Instance Normalization: The Missing Ingredient for Fast Stylization*, arXiv:1607.08022.
