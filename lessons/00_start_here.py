# %% [markdown]
# # 0 Start here
#
# *Ten minutes, then you know the tools.*
#
# **After this lesson you can**
#
# - fill in a stub, check it, and read what the check says;
# - get a hint, start an exercise again, and hand a notebook in;
# - look up what a symbol means, and say in a few words what attention does.
#
# **It builds on** a little Python and NumPy. Section 7 has five questions that tell you whether that is enough.
#
# **How long.** Sections 1 to 5 take ten minutes. Sections 6 to 8 are for looking things up; read the last one before lesson 2.
#
# A notebook is a column of cells. Click into a cell and press Shift and Enter together: the cell runs, and you are in the next one. Start with this one:

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import check, data, figures, hint, own, quiz

figures.style()

# %% [markdown]
# Nothing seems to happen, and that is right: the cell only fetches the tools. If it stops with *No module named ...*, the notebook does not run with the
# course's own Python. Close it, run `make lab` in the course's folder, and open it from there.

# %% overview

# %% [markdown]
# ## 1. Is everything here?
#
# The next cell looks at your Python, the libraries, the folder, the kernel (the program that runs your cells) and the course. Where something is missing,
# it says in one sentence what to do.

# %% explore="environment"
from course import environment

environment.report("1.0")

# %% [markdown]
# ## 2. What an exercise looks like
#
# In this course **rows are tokens**. A token is a word or a part of one, written as a row of `d_model` numbers. A sentence is a stack of rows, an array of the
# shape `(seq, d_model)`; a batch of sentences is `(batch, seq, d_model)`. Almost every function works on the last axis, the numbers of one token, and leaves
# all axes before it alone. We write `(..., d_model)` for that: any number of axes, then `d_model`.
#
# The first exercise is such a function: the mean of every token.
#
# $$m = \frac{1}{d_\text{model}} \sum_j x_j$$
#
# In words: add up the numbers of one token and divide by how many there are.
#
# **By hand.** Two tokens of three numbers: (1, 2, 3) and (4, 6, 8). The sums are 6 and 18, so the means are 2 and 6. The answer keeps the last axis, with one
# number in it: the shape (2, 3) becomes (2, 1). So it still stands beside its tokens, and `x - m` takes each token's own mean away.

# %% explore="means_beside_tokens"
fig, (left, right) = plt.subplots(1, 2, figsize=(5, 2), width_ratios=(3, 1), sharey=True)
for ax, rows, title in ((left, [[1, 2, 3], [4, 6, 8]], "x: (2, 3)"), (right, [[2], [6]], "means: (2, 1)")):
    ax.imshow(rows, vmin=0, vmax=9, cmap="Blues", aspect="auto")
    ax.set(title=title, xticks=range(len(rows[0])), xlabel="last axis", yticks=[0, 1])
    ax.grid(False)
    for (row, column), number in np.ndenumerate(rows):
        ax.text(column, row, number, ha="center", va="center", fontsize=13, color="white" if number > 5 else "black")
left.set_yticklabels(["token 0", "token 1"])
figures.describe(fig, "Two tokens of three numbers, 1 2 3 and 4 6 8, and beside each its mean, 2 and 6: one number per row.")

# %% [markdown]
# Each exercise has a **stub**: a function with its name, its arguments, a text that says what it must do, and a line that raises
# `NotImplementedError`. You replace that line. Below the stub stands one locked cell, the **check**.
#
# Before you write anything, see what a check says to a wrong answer. The next cell holds one, on purpose. Run it.

# %% explore="wrong_on_purpose" tags=["raises-exception"]
def token_means(x):
    return x.mean(axis=0)


check("token_means")

# %% [markdown]
# Read the report from top to bottom:
#
# 1. the **outcome**: correct, partly right, not right yet, or not attempted, with the points;
# 2. the **cause** in plain words, where the check knows the mistake. It knows many; where it does not know yours, it shows the first property that fails;
# 3. the **smallest input** that goes wrong, what your function returned for it, and what was expected, with the first difference marked;
# 4. the **properties**, each with its points. An answer that is right in part earns a part. A few can be judged only by the grader; where that is not at hand, they say *graded on submission*.
#
# The last line, `NotRight`, is there so that "Validate" notices. It is no accident, and *Run All Cells* goes on past it.
#
# Your own prints, warnings and plots cost nothing. Numbers are compared to nine digits, so do not round.
#
# Hints cost nothing either. Each exercise has three: a question, a plan in shapes, and the steps in words. Every run shows one more.

# %% explore="first_hint"
hint("token_means")

# %% [markdown]
# Now it is your turn. Write your answer in the next cell, not in the one above: only the exercise's own cell is graded. Run it, then run the check below it.

# %% exercise="token_means"

# %% [markdown]
# ## 3. When something goes wrong
#
# | you want | do this |
# |---|---|
# | a hint | run `hint("token_means")` in any cell; again for the next one |
# | the stub back | empty the exercise's own cell, type `from course import reset` and below it `reset("token_means")`, and run the cell |
# | right answers, if you learn on your own | after an honest attempt and one check: `from course import solution`, then `solution("token_means")`. It shows three ways and what differs. In a class's notebooks it is switched off |
# | to stop a cell that never ends | the square button above the notebook |
# | to start afresh | menu *Kernel*, *Restart Kernel*, then run the cells from the top. Your text stays |
#
# A new cell of your own (press B) is always allowed: print, plot, try things out. Do not change the check cells; they are put back before grading.
#
# ## 4. When an earlier function is not right yet
#
# Go on. No exercise is a gate.
#
# - Figures that need a right answer have their numbers with them. They work before yours does.
# - A lesson that needs earlier functions of yours begins with a place to paste them, and checks them there, without points.
# - If a later function is right but calls an earlier one that is not, the report says so, and a part of the points is yours.
#
# ## 5. Handing in
#
# 1. Menu *Kernel*, *Restart Kernel and Run All Cells*: does everything still work from top to bottom?
# 2. If you see a *Validate* button, press it. It lists the check cells that fail. Unfinished exercises may stay: they get the points that they have.
# 3. Save, and hand in as your teacher says: with *Submit* in the assignment list, or by sending the notebook file.
#
# The grader asks your functions the same kinds of questions as the checks, with fresh numbers. An answer that only repeats the printed numbers earns nothing.
# If you learn on your own, the check is all there is: nothing to hand in.

# %% [markdown]
# ## 6. Notation on one page
#
# | name | meaning | shape or size |
# |---|---|---|
# | `x` | the tokens: what flows through the model, also called the stream | `(batch, seq, d_model)` or `(seq, d_model)` |
# | `batch` | sentences worked on together | a number, $B$ |
# | `seq` | tokens in a sentence | a number, $T$ |
# | `d_model` | numbers in a token's row | a number, $d$; 512 in the Transformer paper |
# | `d_ff` | width of the hidden layer in the feed-forward network (FFN) | a number; 2048 there |
# | `num_heads` | attention heads | a number, $h$; 8 there |
# | `W_q`, `W_k`, `W_v`, `W_o` | matrices of attention | `(d_model, d_model)` |
# | `W1`, `b1`, `W2`, `b2` | matrices and biases of the FFN | `(d_model, d_ff)`, `(d_ff,)`, `(d_ff, d_model)`, `(d_model,)` |
# | `gamma`, `beta` | scale and shift of a norm, one of each per feature | `(d_model,)` |
# | `eps` | small number under the root of a norm | 0.00001 unless said otherwise |
# | `pos`, `omega` | place in the sentence, from 0; speed of a clock hand | lesson 4 |
# | `(..., d)` | any number of axes, then one of length d | |
#
# - **Rows are tokens, and vectors meet matrices from the left:** `x @ W`. Row *t* of the result depends on row *t* of `x` only.
# - **Axes count from the end:** `axis=-1` is the last one, whatever stands before it.
# - All numbers are float64. A function never changes the arrays it is given; it makes new ones.
# - **Post-norm** is `LayerNorm(x + f(x))`, **pre-norm** is `x + f(LayerNorm(x))`. Where the difference matters, the text says which one is meant.

# %% [markdown]
# ## 7. Five questions before you begin
#
# They take three minutes. Type a letter between the quotes and run the cell. No points, and every answer is explained.

# %% [markdown] quiz="self_test_axis"
# **1.** `x` has the shape (2, 3, 4). Which shape has `x.mean(axis=-1)`?
#
# - [ ] (2, 3, 1) :: Only with keepdims=True. Without it the axis disappears.
# - [x] (2, 3) :: Right: the last axis is averaged away.
# - [ ] (3, 4) :: That would be axis=0, the first axis. Minus one counts from the end.
# - [ ] (4,) :: Then two axes would be gone. One axis is averaged, the other two stay.

# %% [markdown] quiz="self_test_broadcasting"
# **2.** `x` has the shape (3, 3) and `m` the shape (3,): the means of its three rows. What does `x - m` do?
#
# - [ ] It takes from each row its own mean. :: It looks like it, but NumPy lines shapes up from the right: m[j] meets column j. For that, m would need the shape (3, 1).
# - [x] It runs, but takes the mean of row j from column j. :: Right, and no error tells you. That is why this course keeps the last axis, and tests square arrays.
# - [ ] It raises an error, because the shapes differ. :: Shapes are lined up from the right: (3,) counts as (1, 3), which fits (3, 3). With a shape such as (2, 3) and two means it would fail.

# %% [markdown] quiz="self_test_product"
# **3.** `x` has the shape (5, 4): five tokens. `W` has the shape (4, 2). What is row 0 of `x @ W`?
#
# - [x] Row 0 of `x`, times `W`: two numbers. :: Right. Each token is mapped by the same matrix, by itself.
# - [ ] Row 0 of `W`, times `x`. :: The first factor gives the rows: the result has five of them, one per token.
# - [ ] A mixture of all five rows of `x`. :: Mixing tokens takes a matrix on the left side of x, as in A @ x. From the right, W mixes the numbers inside each token.

# %% [markdown] quiz="self_test_in_place"
# **4.** `a = np.zeros(3)`, then `b = a`, then `b += 1`. What is in `a`?
#
# - [ ] (0, 0, 0) :: b is not a copy, only a second name. And += writes into the array itself.
# - [x] (1, 1, 1) :: Right: two names, one array. In the same way, += on an argument changes the caller's array. The checks notice.
# - [ ] (2, 2, 2) :: One is added once, to the one array that there is.

# %% [markdown] quiz="self_test_slope"
# **5.** $y = x^2$. At $x = 3$, the input grows by 0.01. By how much does $y$ grow, roughly?
#
# - [ ] 0.01 :: The slope of x squared is 2x, so 6 at x = 3. Small changes are multiplied by it.
# - [ ] 0.03 :: The slope is 2x, not x.
# - [x] 0.06 :: Right: the slope 2x is 6 there, times 0.01. Lessons 1 to 3 use no more than this, for many numbers at once.
# - [ ] 0.0001 :: That is 0.01 squared, the part that is so small that the slope leaves it out.

# %% [markdown]
# Three or more right at the first try? Go on. If the first three were new to you, take an hour for *NumPy: the absolute basics for beginners* on numpy.org first. The fifth
# matters for a few exercises only, most of them stretch.

# %% [markdown]
# ## 8. What attention does
#
# Lessons 2 to 4 speak of attention; in lesson 5 you write it. In words it is this.
#
# Take the words *cat sat because it was* out of a sentence. To understand *it*, a reader looks back at *cat*. Attention does that with numbers. From its row, every token
# computes three vectors: a **query** ("what am I looking for?"), a **key** ("what am I?") and a **value** ("what do I tell?"). Each is the row times a matrix: `x @ W_q`,
# `x @ W_k`, `x @ W_v`.
#
# Then, for each token:
#
# 1. **Compare.** The dot product of its query with the key of every token is a score: large where they fit. (It is divided by the root of the vectors' length, to keep it moderate.)
# 2. **Share out.** The *softmax* turns its scores into shares: positive numbers that add up to 1. Larger scores get larger shares.
# 3. **Mix.** Its new row is the mixture of all values in these shares.
#
# **By hand.** If a token gives 3/4 to itself and 1/4 to its neighbour, and the values are (1, 0) and (0, 2), its new row is 3/4 · (1, 0) + 1/4 · (0, 2) = (0.75, 0.5).

# %% explore="what_attention_does"
words = ["cat", "sat", "because", "it", "was"]
shares = [0.60, 0.12, 0.04, 0.18, 0.06]
fig, ax = plt.subplots(figsize=(7, 2.8))
for place, (word, share) in enumerate(zip(words, shares)):
    ax.plot([place, 3], [0, 1], lw=16 * share, color=figures.BLUE, solid_capstyle="butt", zorder=1)
    ax.text(place, -0.14, f"{word}\n{share:.2f}", ha="center", va="top")
ax.text(3, 1.06, "new row of “it”", ha="center", va="bottom")
ax.set(xlim=(-0.5, 4.5), ylim=(-0.6, 1.3))
ax.axis("off")
figures.describe(
    fig,
    "Five words with lines to the new row of the word it; the thicker the line, the larger the share: "
    "cat 0.60, it 0.18, sat 0.12, was 0.06, because 0.04. The shares are made up.",
)

# %% [markdown]
# Three things to keep in mind. Attention is the only part of a block in which tokens meet; everything else works on each token alone. The shares come from the tokens themselves, so
# they differ from sentence to sentence. And nothing in these three steps knows *where* a token stands: lesson 4 is about that.
#
# **Several heads** means: this is done several times side by side with smaller vectors, and the results are put together again by `W_o`.
#
# ## What you now know
#
# - An exercise is a stub and a check. The check names the cause, shows the smallest input, and gives points per property.
# - `hint` costs nothing, `reset` brings the stub back, and an unfinished exercise stops nobody.
# - Rows are tokens, functions work on the last axis, and shapes are written `(..., d_model)`.
# - Attention compares, shares out, and mixes.
#
# Next: lesson 1, residual connections.
