# %% [markdown]
# # 4 Positional encoding as a rotation
#
# *A clock with 256 hands.*
#
# Attention compares every word with every other word. It does not see which of them came first. This lesson gives each place in a
# sentence a mark that the network can read, and shows why the mark of the original Transformer is a clock.
#
# **After this lesson you can**
#
# - say exactly what attention loses without positions, and test it;
# - build the table of the Transformer paper, and read a row of it as 256 clock hands;
# - say how alike two places look, and why only their distance counts;
# - move a whole sentence by *k* places with one matrix, and say which way it turns;
# - explain what adding positions gives away again, and how rotary positions (RoPE) keep it;
# - read a position back from blurred numbers.
#
# **It builds on** lesson 0: rows are tokens, a vector meets a matrix from the left (`x @ W`), and half a page on what attention does. You need sine, cosine
# and radians. No earlier code has to be pasted. Nothing here depends on post-norm or pre-norm: positions come in before the first block.
#
# **How long.** The core exercises take about 85 minutes with the reading. The stretch exercises take another hour; no core exercise needs them.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import check, data, figures, hint, own, quiz

figures.style()

# %% overview

# %% [markdown]
# ## 1. Attention sees a bag of words
#
# Take the three words *dog bites man*. Attention in an encoder gives each word a new row: a mixture of what all
# the words say, weighted by how well they match. Which word matches which is computed from the words
# themselves. Where they stand is used nowhere.
#
# So what happens if the words change places?

# %% [markdown] quiz="bag_of_words"
# **Predict.** One attention layer, no positions. You turn *dog bites man* into *man bites dog*. What
# happens to the three output rows?
#
# - [ ] All three rows get new numbers. :: The words are the same, so each word still meets the same partners with the same weights. No number changes.
# - [ ] Nothing at all: the output is the same array. :: The rows hold the same numbers, but they have moved: the row of *dog* is now the last one. The output moves along with the words.
# - [x] The rows of *dog* and *man* change places; no number changes. :: Right. The output moves along with the input. That is called equivariant. Nothing in any row tells the two sentences apart.
# - [ ] Only the row of *bites* changes, because its neighbours did. :: Attention knows no neighbours. *bites* sees *dog* and *man* as before, only in another order, and a sum does not care about order.

# %% explore="bag"
bag = data("bag_of_words")
fig, axes = plt.subplots(1, 2, figsize=(8, 2.6), sharex=True)
for ax, rows, words in zip(axes, (bag["before"], bag["after"]), ("dog bites man", "man bites dog")):
    ax.imshow(rows, vmin=-1.2, vmax=1.2, aspect="auto")
    ax.set(title=words, xlabel="feature of the output", xticks=range(4))
    ax.set_yticks(range(3), words.split())
    ax.grid(False)
    for (row, column), value in np.ndenumerate(rows):
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value < 0.1 else "black")
axes[0].set_ylabel("token")
figures.describe(
    fig,
    "One attention head without positions: turning the sentence round moves the rows of dog and man and changes no number.",
)

# %% [markdown]
# Two words for this, often mixed up:
#
# - **invariant**: the output stays the same. A sum over all rows is invariant.
# - **equivariant**: the output moves along. Attention without positions is equivariant.
#
# Each word keeps its own row, so attention is not blind to *which* words there are. It is blind to
# *where* they are. *dog bites man* and *man bites dog* give the same rows, only stacked in another order.
#
# The way out is simple: before the first block, mark every row with its place.

# %% [markdown]
# ## 2. A clock with 256 hands
#
# How would you write the number of a place into a vector? The bare number 0, 1, 2, 3, ... grows without
# end and drowns the words. A clock does better: its hands go round and never grow, and several hands
# of different speed together show a long time.
#
# In a vector of `d_model` numbers there is room for `d_model / 2` hands, because a hand takes two
# numbers: how far it points to the right, and how far up. For `d_model = 512` that makes 256 hands.
# Hand *i* is also called *pair i*, and *i* counts from 0. It turns by a fixed angle from each place to the next:
#
# $$\omega_i = \text{base}^{-2i/d_\text{model}} \qquad \text{with base} = 10000$$
#
# In words: *omega of hand i is the base to the power minus two i over d_model*. It is an angle in **radians per
# position**. Hand 0 always turns by 1 radian (about 57 degrees), since any number to the power 0 is 1. The others are slower and slower.
#
# A full turn is $2\pi$ radians, about 6.283. So one turn takes $2\pi / \omega_i$ positions. This is the **wavelength** of the hand.
#
# **By hand,** for `d_model = 4` there are two hands. Hand 0: exponent 0, omega 1, wavelength 6.283. Hand 1:
# exponent -2/4 = -0.5, omega is 1 over the root of 10000, so 0.01, and the wavelength is 628.319.
#
# For `d_model = 512`:
#
# | hand *i* | 0 | 1 | 2 | 32 | 64 | 128 | 192 | 255 |
# |---|--:|--:|--:|--:|--:|--:|--:|--:|
# | wavelength, in positions | 6.2832 | 6.5134 | 6.7520 | 19.8692 | 62.8319 | 628.3185 | 6283.185 | 60611.477 |
#
# Every 64 hands the wavelength grows by a factor of 10. The last hand stops a little short of $10000 \cdot 2\pi = 62832$,
# because the exponent of the last pair is a little less than 1.

# %% explore="three_hands"
pos = np.linspace(0, 63, 600)
fig, axes = plt.subplots(3, 1, figsize=(7, 4.2), sharex=True, sharey=True)
for ax, i, wavelength in zip(axes, (0, 32, 64), (6.2832, 19.8692, 62.8319)):
    ax.plot(pos, np.sin(2 * np.pi * pos / wavelength))
    ax.plot(range(64), np.sin(2 * np.pi * np.arange(64) / wavelength), "o", ms=3)
    ax.set(title=f"hand {i}: one turn in {wavelength:.1f} positions", ylabel="sine", ylim=(-1.2, 1.2))
axes[-1].set_xlabel("position")
figures.describe(
    fig,
    "The sines of hands 0, 32 and 64 over 64 positions: they repeat after 6.3, 19.9 and 62.8 positions; dots mark whole "
    "positions.",
)

# %% [markdown]
# The first hand repeats every 6.28 positions and tells neighbours apart. The last one needs 60,611 positions
# for a turn and tells the beginning of a book from its end. Your first function computes how long each takes.

# %% exercise="wavelengths"

# %% explore="all_wavelengths"
wavelength = data("all_wavelengths")["wavelength"]
fig, ax = plt.subplots()
ax.semilogy(wavelength)
ax.axhline(10000 * 2 * np.pi, color=figures.RED, linestyle="--")
ax.text(0, 75000, "10000 · 2π = 62832: not reached", color=figures.RED)
ax.set(xlabel="hand i", ylabel="wavelength in positions (log scale)", ylim=(4, 200000))
figures.describe(
    fig,
    "Wavelengths of the 256 hands on a logarithmic scale: a straight line from 6.28 to 60,611, just below 62,832.",
)

# %% [markdown]
# ## 3. The table
#
# At place `pos`, hand *i* has turned by the angle `pos` times omega. The table holds one row per place, and in it the sine and the
# cosine of every hand, side by side:
#
# $$PE[\text{pos}, 2i] = \sin(\text{pos} \cdot \omega_i) \qquad PE[\text{pos}, 2i+1] = \cos(\text{pos} \cdot \omega_i)$$
#
# In words: *in row pos, the even column two i holds the sine of pos times omega i; the odd column beside it holds the cosine
# of the same angle.* Both columns of a pair belong to one hand. This order is called **interleaved**. Positions count from 0.
#
# **By hand,** for `d_model = 4`. Position 0: all angles are 0, so the row is (0, 1, 0, 1). Position 1: the angles are
# 1 and 0.01, so the row is (0.8415, 0.5403, 0.0100, 1.0000).
#
# Some entries of the table for `d_model = 512`:
#
# | pos | column 0 | column 1 | column 2 | column 3 | column 510 | column 511 |
# |--:|--:|--:|--:|--:|--:|--:|
# | 0 | 0.0000 | 1.0000 | 0.0000 | 1.0000 | 0.000000 | 1.000000 |
# | 1 | 0.8415 | 0.5403 | 0.8219 | 0.5697 | 0.000104 | 1.000000 |
# | 2 | 0.9093 | -0.4161 | 0.9364 | -0.3509 | 0.000207 | 1.000000 |
# | 3 | 0.1411 | -0.9900 | 0.2451 | -0.9695 | 0.000311 | 1.000000 |
# | 10 | -0.5440 | -0.8391 | -0.2200 | -0.9755 | 0.001037 | 0.999999 |
# | 50 | -0.2624 | 0.9650 | -0.8953 | -0.4454 | 0.005183 | 0.999987 |
#
# Look at columns 2 and 3 in row 1. They belong to hand 1, whose angle there is 0.9647, and 0.8219 and 0.5697 are its sine and cosine.
#
# One property comes for free. Sine squared plus cosine squared is 1, so every pair adds 1 to the squared length of a row. A row of 512
# numbers has the length $\sqrt{256} = 16$, at every position. No place is louder than another.

# %% explore="clock_faces"
clock = data("clock_hands")
x, y = np.meshgrid(range(16), range(16))
fig, axes = plt.subplots(1, 4, figsize=(11, 3.2))
for ax, pos, right, up in zip(axes, clock["positions"], clock["right"], clock["up"]):
    ax.quiver(x, y, right.reshape(16, 16), up.reshape(16, 16), scale=18, width=0.008, color=figures.BLUE)
    ax.set(title=f"position {pos}", aspect="equal", xticks=[], yticks=[0, 15], xlim=(-1, 16), ylim=(16, -1))
    ax.set_yticklabels(["hands 0 to 15", "hands 240 to 255"] if pos == 0 else [])
    ax.grid(False)
figures.describe(
    fig,
    "The 256 hands as arrows, 16 to a row, sine to the right and cosine up: all point up at position 0; at 1, 10 and 100 "
    "the fast hands in the upper rows have moved on, the slow ones below hardly.",
)

# %% [markdown]
# At position 0 all hands point straight up. The fast hands (top rows) leave at once; the slow ones (bottom rows) have hardly moved at position 100.

# %% exercise="positional_encoding"

# %% explore="table_picture"
fig, ax = plt.subplots(figsize=(7.5, 4))
image = ax.imshow(data("table_picture")["table"], aspect="auto", vmin=-1, vmax=1)
ax.set(xlabel="column", ylabel="position", title="the table for d_model = 32")
ax.grid(False)
fig.colorbar(image, label="entry")
figures.describe(
    fig,
    "Heat map of 40 positions by 32 columns: the left columns flicker from row to row, the right ones hardly change: their "
    "sines stay near 0, their cosines near 1.",
)

# %% [markdown]
# The next cell lets the clock run on *your* table. Press the triangle.

# %% explore="clock_running"
from ipywidgets import Play, interact

make_table = own("positional_encoding")


def show_clock(pos=0):
    row = running[pos]
    fig, ax = plt.subplots(figsize=(3.6, 3.6))
    x, y = np.meshgrid(range(16), range(16))
    ax.quiver(x, y, row[0::2].reshape(16, 16), row[1::2].reshape(16, 16), scale=18, width=0.008, color=figures.BLUE)
    ax.set(title=f"position {pos}", aspect="equal", xticks=[], yticks=[], xlim=(-1, 16), ylim=(16, -1))
    ax.grid(False)
    return figures.describe(fig, f"The 256 hands at position {pos}.")


if make_table is None:
    print("This clock runs on your own table. Come back once the check of 4.2 says that it is right.")
else:
    running = make_table(201, 512)
    interact(show_clock, pos=Play(min=0, max=200, interval=150));

# %% [markdown]
# ## 4. How alike are two places?
#
# Attention compares vectors by their dot product. So what is the dot product of two rows of the table?
#
# Each pair adds sine times sine plus cosine times cosine. School has a rule for that:
#
# $$\sin a \, \sin b + \cos a \, \cos b = \cos(a - b)$$
#
# In words: *the product of two hands is the cosine of the angle between them*. The angle between hand *i* at two places is their
# distance *k* times omega. The starting place drops out:
#
# $$PE[\text{pos}] \cdot PE[\text{pos} + k] = \sum_i \cos(\omega_i \, k)$$
#
# In words: *the dot product of two rows is the sum, over all hands, of the cosine of omega times the distance*. **Only the distance counts.**
#
# **By hand,** for `d_model = 4` and *k* = 1: cosine of 1 plus cosine of 0.01 is 0.54030 + 0.99995 = 1.54025. A row with itself: 1 + 1 = 2.
#
# For `d_model = 512`:
#
# | distance *k* | 0 | 1 | 2 | 5 | 10 | 20 |
# |---|--:|--:|--:|--:|--:|--:|
# | dot product | 256.00 | 249.10 | 231.73 | 189.60 | 173.79 | 157.57 |

# %% [markdown] quiz="steady_fall"
# **Predict.** From 256 down to 157.57: does the dot product go on falling with every further step?
#
# - [ ] Yes, each step makes two places less alike. :: The cosine of a hand falls only until half a turn. Then it rises again. The hands do this at different times, so the sum falls and ripples.
# - [x] No, it falls as a trend, with ripples. :: Right. For d_model = 512 it rises for the first time at k = 44, for d_model = 8 already at k = 4.
# - [ ] No, it falls to 0 and stays there. :: The slow hands keep it up for long: they have hardly moved. Far away it even becomes negative.
# - [ ] It depends on the starting place. :: The starting place has dropped out of the formula. Distance is all that counts.

# %% explore="likeness"
alike = data("likeness")
fig, (near, far) = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True, width_ratios=(3, 2))
for d in (8, 64, 512):
    near.plot(alike["near"], alike[f"d{d}"], label=f"d_model = {d}")
near.set(xlabel="distance k in positions", ylabel="dot product, value at 0 = 1")
near.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=9)
far.plot(alike["far"], alike["far512"], color=figures.GREEN)
far.axhline(0, color=figures.BLACK, lw=0.8)
far.set(xlabel="distance k in positions", title="d_model = 512, far away")
figures.describe(
    fig,
    "Likeness of two places against their distance: highest at 0, the same to both sides, falling with ripples; for d_model "
    "= 512 it ends a little below 0 after some thousand positions.",
)

# %% [markdown]
# Three things to see. The curve is the same to the left and to the right: the product does not know which word comes first. It
# falls as a trend, not as a law: the first rise is at *k* = 44 for `d_model = 512` and at *k* = 4 for `d_model = 8`. And far away it goes
# below zero: -17.97 at *k* = 5839, -37.90 at *k* = 18,469.

# %% exercise="pe_dot"

# %% [markdown]
# ## 5. Word plus place
#
# The first block reads the sum of two rows: one says *which word*, one says *which place*.
#
# $$x = \sqrt{d_\text{model}} \cdot E[\text{id}] + PE[\text{place}]$$
#
# In words: *look up the word's row in the table E, multiply it by the root of d_model, and add the row of the place where it
# stands*. The place counts within the sentence, from 0; every sentence of a batch starts again at 0.
#
# Why the root? In the paper the table E has a second job: the same numbers turn the decoder's output into
# scores for words. For that job its rows have to be short. A typical row of one released model has the length 1.083, beside 16 for a
# place: the word would be a whisper. The root of 512 is 22.627, and the scaled word has length 24.5. Now word and
# place are about equally loud. Other models leave the root out, for example where a norm follows right after the sum.
#
# **By hand,** for `d_model = 4` the root is 2. The word's row (0.1, 0.2, -0.1, 0.05) becomes (0.2, 0.4, -0.2, 0.1). The same word
# at place 0 and at place 1:
#
# | the same word | column 0 | column 1 | column 2 | column 3 |
# |---|--:|--:|--:|--:|
# | at place 0: plus (0, 1, 0, 1) | 0.200 | 1.400 | -0.200 | 1.100 |
# | at place 1: plus (0.84147, 0.54030, 0.01000, 0.99995) | 1.041 | 0.940 | -0.190 | 1.100 |
#
# The two rows differ by their places and by nothing else.

# %% explore="whisper"
widths = np.array([8, 16, 32, 64, 128, 256, 512, 1024])
rng = np.random.default_rng(0)
words = [np.linalg.norm(rng.normal(size=(500, d)) / np.sqrt(d), axis=1).mean() for d in widths]
fig, ax = plt.subplots()
ax.loglog(widths, np.sqrt(widths) * words, "o-", label="word, times the root of d_model")
ax.loglog(widths, np.sqrt(widths / 2), "s-", label="place")
ax.loglog(widths, words, "^-", label="word as it stands in the table")
ax.set(xlabel="d_model", ylabel="length of the row (log scale)", xticks=widths, xticklabels=widths)
ax.minorticks_off()
ax.legend()
figures.describe(
    fig,
    "Length of rows against d_model: words of random tables with short rows stay at 1 while places grow with the root of "
    "d_model, so unscaled words become a whisper; scaled words keep pace.",
)

# %% exercise="embed"

# %% [markdown]
# ## 6. Does it see the order? (stretch)
#
# You saw the bag of words in a picture. Now make it a test that works for any function *f* from rows to rows.
#
# There are two ways to a shuffled output: shuffle the rows and give them to *f*, or give them to *f* and
# shuffle what comes out. If both ways always agree, *f* treats all places alike: it is equivariant.
#
# $$\text{gap} = \max \, | \, f(X[\text{perm}]) - f(X)[\text{perm}] \, |$$
#
# In words: *the gap is the largest absolute entry of f of the shuffled rows minus the shuffled rows of f*.
#
# **By hand,** let *f* be the running sum, *X* the column (1, 2, 3), and the shuffle (1, 2, 0): row 1 comes first, then row 2, then
# row 0. Shuffled: (2, 3, 1). Its running sum: (2, 5, 6). The other way: the running sum of *X* is (1, 3, 6), shuffled (3, 6, 1).
# The difference is (-1, -1, 5). The gap is 5: a running sum sees the order.

# %% exercise="equivariance_gap"

# %% [markdown] quiz="causal_swap"
# **Predict.** A decoder hides the future: with a **causal mask**, each token attends only to itself and to earlier tokens. No
# positions are added. What does the test say?
#
# - [ ] The gap is 0: it is still attention without positions. :: The mask is itself made of positions: who comes earlier decides who may look at whom.
# - [x] The gap is above 0. :: Right. The first token sees one token, the second two, and so on. A model with a causal mask can learn the order from that alone.
# - [ ] The gap is 0 for the first token only. :: After the shuffle another token may stand first. Even that row changes.

# %% explore="swap_test"
swap = data("swap_test")
fig, ax = plt.subplots(figsize=(7, 2.8))
bars = ax.barh(swap["names"], swap["gaps"], color=figures.SKY)
ax.bar_label(bars, [f"{gap:.2f}" for gap in swap["gaps"]], padding=4)
ax.invert_yaxis()
ax.set(xlabel="gap: largest absolute difference", xlim=(0, 10))
figures.describe(
    fig,
    "The gap for five functions of six random tokens: 0 for a map of each row and for plain attention, clearly above 0 with "
    "positions added, with a causal mask, and for a running sum.",
)

# %% [markdown]
# So the sentence "attention does not see the order" needs two conditions: **no positions, and no causal mask**. An encoder has no such mask.
# It needs the table.

# %% [markdown]
# ## 7. A shift is a rotation
#
# A head may want "the word *k* places back". For that, the row of `pos + k` must be easy to compute from the row of `pos`, with the same recipe
# at every place. With clock hands it is: moving on by *k* places turns hand *i* by the angle $k\,\omega_i$, wherever it points.
#
# Two rules from school say it for the sine and the cosine. Write *a* for the angle now and *b* for the turn:
#
# $$\sin(a + b) = \sin a \, \cos b + \cos a \, \sin b \qquad \cos(a + b) = \cos a \, \cos b - \sin a \, \sin b$$
#
# With the sine on top and the cosine below, as a **column**, that is one matrix, with $b = k\,\omega_i$:
#
# $$\begin{pmatrix} \sin(a+b) \\ \cos(a+b) \end{pmatrix} = \begin{pmatrix} \cos b & \sin b \\ -\sin b & \cos b \end{pmatrix} \begin{pmatrix} \sin a \\ \cos a \end{pmatrix}$$
#
# In words: *the new sine is cosine b times the old sine plus sine b times the old cosine; the new cosine is minus sine b times the old sine
# plus cosine b times the old cosine.* The angle *a* stands only in the columns. The matrix does not know where the clock stands.
#
# **By hand,** one step of hand 0 (*k* = 1, omega = 1): the matrix is ((0.5403, 0.8415), (-0.8415, 0.5403)). Position 0 is the column (0, 1).
# The product is (0.8415, 0.5403), the reading at position 1.

# %% [markdown] quiz="way_round"
# **Predict.** Draw the sine to the right and the cosine up, as in the clock pictures above. Which way does a hand turn from position to position?
#
# - [x] Clockwise, like the hand of a clock. :: Right. It starts at the top, at sine 0 and cosine 1, and moves to the right, where the sine is positive.
# - [ ] Counter-clockwise, as angles do in school. :: In school the cosine is drawn to the right and the sine up. With the two axes exchanged, the same angles run the other way round.
# - [ ] The even hands one way, the odd ones the other. :: Every omega is positive, so all hands turn the same way, only at different speeds.

# %% explore="one_pair"
angle = np.arange(7)
circle = np.linspace(0, 2 * np.pi, 200)
fig, ax = plt.subplots(figsize=(4.6, 4.4))
ax.plot(np.sin(circle), np.cos(circle), color=figures.SKY, lw=1)
for start in range(6):
    arrow = {"arrowstyle": "->", "color": figures.ORANGE, "connectionstyle": "arc3,rad=-0.25", "lw": 1.5}
    begin, end = (np.sin(start), np.cos(start)), (np.sin(start + 1), np.cos(start + 1))
    ax.annotate("", xy=end, xytext=begin, arrowprops=arrow)
ax.plot(np.sin(angle), np.cos(angle), "o", color=figures.BLUE)
for pos in angle:
    ax.text(1.15 * np.sin(pos), 1.15 * np.cos(pos), pos, ha="center", va="center")
ax.set(xlabel="sine (column 0)", ylabel="cosine (column 1)", aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
figures.describe(
    fig,
    "Hand 0 at positions 0 to 6 on a circle, sine to the right and cosine up: it starts at the top and every step is the "
    "same turn, clockwise.",
)

# %% [markdown]
# The same arrow leads from 0 to 1, from 1 to 2, from 5 to 6. Drawn with the cosine to the right and the sine up, the arrows would run
# counter-clockwise. So "which way?" has an answer only together with "which axes?". Remember it for RoPE below.
#
# The whole shift matrix has one such block per hand along its diagonal, each with its own omega, and zeros everywhere else. In this course rows
# are tokens. For rows the same step is `P[pos + k] = P[pos] @ S.T`: transpose the matrix, and it works from the right.

# %% exercise="shift_matrix"

# %% [markdown]
# ## 8. What adding gives away
#
# The dot product of two *places* depends on their distance alone. Attention does not compare places, though. It compares sums of word and
# place, after two matrices. With word rows $w$ and place rows $p$, the score of a query at place *m* with a key at place *n* is
#
# $$(w_m + p_m) \, W_Q W_K^\top \, (w_n + p_n)^\top$$
#
# In words: *word plus place at m, times W_Q, times W_K transposed, times word plus place at n.* (The division by a root is left out here.)
#
# Multiply it out and there are four terms: word with word, word with place, place with word, place with place. In the last one
# $W_Q W_K^\top$ stands between the two clocks. It mixes the hands. Only for special matrices does the distance survive.

# %% explore="four_terms"
terms = data("score_terms")
names = ["plain", "word-word", "word-place", "place-word", "place-place"]
titles = ["place · place,\nno matrices", "word with word", "word with place", "place with word", "place with place"]
fig, axes = plt.subplots(1, 5, figsize=(12, 3), sharey=True)
for ax, name, title in zip(axes, names, titles):
    ax.imshow(terms[name])
    ax.set(xlabel="place of the key", xticks=[0, 5, 10], yticks=[0, 5, 10])
    ax.set_title(title, fontsize=10)
    ax.grid(False)
axes[0].set_ylabel("place of the query")
figures.describe(
    fig,
    "Five heat maps for 12 random words: without matrices the place term is striped along the diagonals; with random W_Q "
    "and W_K none of the four terms is.",
)

# %% [markdown]
# Bright means a high score. In the first map each diagonal has one colour: equal distance, equal score. In the last map, the same places after random $W_Q$ and $W_K$,
# the stripes are gone. Training may bring something like them back, but nothing in the architecture does.
#
# ## 9. Turn instead of adding: RoPE (stretch)
#
# **Rotary positions** (RoPE) go another way. Nothing is added to the words. Instead, queries and keys are cut into pairs, and each pair is turned by
# `position` times omega, *after* $W_Q$ and $W_K$. Turning a pair (a, b) **counter-clockwise** by the angle $\theta$ gives
#
# $$(a \cos\theta - b \sin\theta, \;\; a \sin\theta + b \cos\theta)$$
#
# In words: *new a is old a times cosine minus old b times sine; new b is old a times sine plus old b times cosine.* The pairs here are
# neighbouring columns, interleaved as in the table.
#
# Why does that help? If a query is turned by *m* steps and a key by *n*, the angle between them changes by *n - m* steps and by nothing else. So
# for two given words the score depends on their distance alone, whatever the matrices are.
#
# **By hand,** the pair (1, 0) at position 1 becomes (0.5403, 0.8415), at position 2 (-0.4161, 0.9093). Their dot product is
# 0.5403 · (-0.4161) + 0.8415 · 0.9093 = 0.540, the cosine of 1: one step apart.

# %% explore="added_or_turned"
scores = data("added_or_turned")
fig, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True)
for ax, name, title in zip(axes, ("added", "turned"), ("places added before W_Q, W_K", "RoPE: turned after W_Q, W_K")):
    image = ax.imshow(scores[name])
    ax.set(xlabel="place of the key", xticks=[0, 5, 10], yticks=[0, 5, 10])
    ax.set_title(title, fontsize=10)
    ax.grid(False)
    fig.colorbar(image, ax=ax, label="score")
axes[0].set_ylabel("place of the query")
figures.describe(
    fig,
    "Scores of one word with itself at 12 places, same random W_Q and W_K: with added places no diagonal has a single "
    "colour, with RoPE every diagonal has.",
)

# %% exercise="rope"

# %% [markdown]
# **How far does it reach?** Rows of the table and turns of RoPE can be computed for any position, also far beyond the longest text in training. The paper says that its table
# *may* help a model with longer texts. Later tests found that it hardly does, and plain RoPE does little better. To be able to compute a mark is one thing; to have learned
# what to do with it is another.

# %% [markdown]
# ## 10. Four tables, all correct
#
# The paper writes down one table. Programs use others. All of them hold the same kind of hands:
#
# - **the paper's**: sine and cosine of a pair side by side,
# - **Marian's order**: all sines first, then all cosines,
# - **tensor2tensor's**: all sines first too, and the exponent is $i / (d_\text{model}/2 - 1)$, so that the last wavelength reaches 62,832,
# - **half-split rotary** (GPT-NeoX): nothing is added here, but the turned columns have a layout too. Pair *i* is made of columns *i* and $i + d_\text{model}/2$. The picture shows what
#   it makes of a row of ones and zeros, the ones in front.

# %% explore="four_tables"
tables = data("four_tables")
titles = {
    "paper": "paper",
    "marian": "Marian's order",
    "tensor2tensor": "tensor2tensor",
    "half_split": "half-split rotary",
}
fig, axes = plt.subplots(1, 4, figsize=(11, 3.2), sharey=True)
for ax, (name, title) in zip(axes, titles.items()):
    ax.imshow(tables[name], aspect="auto", vmin=-1, vmax=1)
    ax.set(title=title, xlabel="column")
    ax.grid(False)
axes[0].set_ylabel("position")
figures.describe(
    fig,
    "Four tables for d_model = 32 and 40 positions: the same waves, in the paper's table side by side, in the three others "
    "with all sines and all cosines in separate halves.",
)

# %% [markdown]
# The information is of the same kind, and a model trained with any of them can be equally good. But its **weights** fit one table only. Swap the table under trained weights and
# single entries are off by up to 2.00, the largest difference that sines and cosines can have. No error is raised. In one released model, sines and cosines in the wrong
# order moved the encoder's output by up to 4.12, and the right and the wrong output rows had a mean cosine of 0.776; a program with this fault
# runs without a word. When you load weights, find out which layout they were trained with.

# %% [markdown]
# ## 11. Reading the time back (stretch)
#
# Can the network get the position back out of the row? You can, even if the numbers are blurred. Suppose that every entry of a row of
# width 32 carries noise of about 0.1.
#
# A blur of 0.1 in sine and cosine is a blur of about 0.1 radians in the angle of each hand:
#
# - the **fastest** hand has omega 1, so 0.1 radians are a tenth of a position: precise. But it shows the same at 0, 6.28, 12.57, ...
# - the **slowest** hand has omega 0.000178, so 0.1 radians are 562 positions: hopelessly vague. But a turn takes 35,333 positions, so it
#   never confuses the beginning with the end.
#
# Fast hands are precise, slow hands are unambiguous. You read a wall clock the same way: the hour hand first, then the minute hand.

# %% explore="blurred_hands"
blur = data("blurred_hands")
fig, ax = plt.subplots(figsize=(8.5, 3))
for row, (begin, width) in enumerate(zip(blur["begin"].T, blur["width"])):
    ax.broken_barh([(left, width) for left in begin], (row - 0.35, 0.7), color=figures.BLUE)
ax.axvline(44, color=figures.RED, linestyle="--")
ax.set_yticks(range(4), [f"{wavelength:.1f}" for wavelength in blur["wavelength"]])
ax.set(xlabel="position", ylabel="positions per turn", xlim=(-2, 130))
figures.describe(
    fig,
    "Bars show where each of four blurred hands says that it can be: the fast hand many thin bars, the slow ones few wide "
    "bars. Only at the dashed line, position 44, all four agree.",
)

# %% exercise="decode_position"

# %% [markdown]
# ## What you now know
#
# - Attention without positions and without a causal mask is **equivariant**: outputs move along with the words, and no number changes.
# - A row of the table is a clock with `d_model / 2` hands. Hand *i* turns by $10000^{-2i/d_\text{model}}$ radians per position; two columns show one hand.
# - Moving by *k* places is one rotation matrix, the same at every position. Which way it turns depends on which axis is which.
# - The dot product of two rows depends on their distance alone: a falling trend with ripples.
# - Added to words and sent through $W_Q$ and $W_K$, that is lost. RoPE turns queries and keys after those matrices and keeps it.
# - Interleaved or in halves, the paper's exponent or another: the same kind of information, but weights fit one layout only.

# %% [markdown] written="distance_only" points=4
# **In your own words.** A colleague writes: "*Sinusoidal positions are added to the words. Therefore attention scores depend only on the distance
# between two tokens, and the model works for texts of any length.*" Which parts of this are right, which are wrong, and what would you change?
# About 150 words.
#
# ---
#
# **Rubric** (4 points), one point each:
#
# 1. **What is right:** the dot product of two rows of the table depends on the distance alone (a sum of cosines of omega times the distance); a shift is the same rotation everywhere.
# 2. **Why it does not carry over:** positions are added to words and pass through W_Q and W_K. The score has four terms; the matrix between the two places mixes the hands, and the mixed terms (word with place) depend on the absolute place. Only special weights keep the distance.
# 3. **What would make it true:** turning queries and keys after the projections (RoPE); the score then depends on the words and the distance. (Relative biases such as ALiBi or T5's are also accepted.)
# 4. **Length:** the table can be computed for any position, but the paper says only that it *may* extrapolate; later tests found it poor, for plain RoPE too. Being able to compute a row is not the same as having learned to use it.
#
# **Model answer.** The first half is true of the table itself: the product of two rows is a sum of cosines of the distance. But attention does not multiply rows of the table. It multiplies (word + place) W_Q with (word + place) W_K.
# That gives four terms. Two of them join a word with an absolute place, and in the fourth the matrix W_Q W_K^T stands between the places and mixes the hands, so that equal distances no longer give equal scores, except for special weights.
# With RoPE, which turns queries and keys after the projections, scores do depend on the words and on the distance only. "Any length" does not follow in either case: a row exists for every position, but the model has never
# been trained on rows far down. The paper says that sinusoids may extrapolate; later tests found that they do so badly. I would write: "the table makes relative positions easy to use; it does not make scores relative, and longer texts have to be tested."

# %% [markdown]
# ## Where this shows up in real models
#
# - The original Transformer and many translation models (Marian) add this table. BERT and GPT-2 add a table too, but a learned one: no row beyond its end exists.
# - T5 adds a learned number per distance to the scores; ALiBi subtracts one that grows with the distance.
# - GPT-J, GPT-NeoX, LLaMA and most later language models use RoPE. GPT-J's pairs are interleaved, those of GPT-NeoX are half-split. LLaMA's weights are in use in both layouts: whoever converts them has
#   to reorder columns of W_Q and W_K, and forgetting it raises no error.
# - Some decoders are trained without any positions: the causal mask alone lets them tell places apart.
#
# ## Further reading
#
# - Vaswani and others (2017), *Attention Is All You Need*, arXiv:1706.03762, section 3.5. The table, and the "may" about longer texts.
# - Shaw, Uszkoreit and Vaswani (2018), *Self-Attention with Relative Position Representations*, arXiv:1803.02155. Distances inside the scores.
# - Su and others (2021), *RoFormer: Enhanced Transformer with Rotary Position Embedding*, arXiv:2104.09864. RoPE.
# - Press, Smith and Lewis (2022), *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, arXiv:2108.12409. ALiBi, and how
#   poorly sinusoids extrapolate.
# - Kazemnejad and others (2023), *The Impact of Positional Encoding on Length Generalization in Transformers*, arXiv:2305.19466. Decoders without positions.
