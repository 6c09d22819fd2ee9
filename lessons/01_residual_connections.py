# %% [markdown]
# # 1 Residual connections and gradients
#
# An encoder stacks many sub-layers. None of them replaces what it reads: each one only proposes a
# change, and the change is added. This lesson is about that add: what it means on the way
# forward, and what it does to gradients on the way back.
#
# **After this lesson you can**
#
# - say what a sub-layer returns, and why the width `d_model` never changes inside a stack,
# - measure any Jacobian without calculus, and use it to check a gradient that you worked out by hand,
# - send a gradient back through one residual layer and through a whole stack,
# - say what the identity in "x plus f(x)" does for gradients, and what it does not do,
# - measure for each token whether a layer edits it or rewrites it,
# - explain why most of the gradient of a deep stack takes short paths.
#
# **It builds on** lesson 0: rows are tokens, a vector meets a weight matrix from the left (`x @ W`). You need matrix
# products and the chain rule. Everything else is built here.
#
# **Time:** about 75 minutes for the core exercises with the reading. The stretch exercises take another hour and a
# half; they finish with a small network that your own back-propagation trains.

# %% overview

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import check, data, figures, hint, own, quiz

figures.style()

# %% [markdown]
# ## A sub-layer proposes a change
#
# Think of an editor with a manuscript. The editor does not write the page again; the editor writes a change in the margin, and the
# change is worked in. A **residual connection** treats every sub-layer as such an editor. The sub-layer, a function *f*, reads the tokens *x* and
# returns a change. The new tokens are
#
# $$y = x + f(x)$$
#
# Read aloud: *y is x plus what f makes of x*. The row of numbers that is handed from add to add is called the **residual stream**.
#
# **By hand.** A token is (2, 0), and the sub-layer proposes the change (0.5, -1). Entry by entry, 2 + 0.5 = 2.5 and 0 - 1 = -1. The new token
# is (2.5, -1).

# %% explore="one_edit"
fig, ax = plt.subplots(figsize=(6.4, 2.8))
arrows = {"x = (2, 0)": ((0, 0), (2, 0), figures.BLUE), "change (0.5, -1)": ((2, 0), (0.5, -1), figures.ORANGE)}
arrows["y = (2.5, -1)"] = ((0, 0), (2.5, -1), figures.GREEN)
for label, (start, step, colour) in arrows.items():
    ax.quiver(*start, *step, angles="xy", scale_units="xy", scale=1, color=colour, width=0.012, label=label)
ax.set(xlim=(-0.2, 5.2), ylim=(-1.3, 0.4), xlabel="first number of the token", ylabel="second number", aspect="equal")
ax.legend(loc="center right", frameon=False)
figures.describe(fig, "Three arrows: the token x = (2, 0), the change (0.5, -1) that starts at its tip, and their sum y = (2.5, -1), which still points much the same way as x.")

# %% [markdown] quiz="why_residual"
# **Predict.** What is a residual connection for? Why not simply pass the sub-layer's output on?
#
# - [ ] It saves arithmetic: the sub-layer has less to compute. :: The sub-layer computes just as much; the add comes on top.
# - [ ] It keeps the numbers small. :: An add can make them larger. In a pre-norm stack they do grow with depth, as you will measure below.
# - [x] The sub-layer needs to learn only the change, and both the token and its gradient have a way past it. :: Right. A sub-layer that has learned nothing yet does no harm, and the layers below it still hear from the loss.
# - [ ] It guarantees that gradients never vanish. :: It removes one cause of that. You will build residual stacks whose gradient vanishes, and others whose gradient explodes.

# %% [markdown]
# Two things follow at once.
#
# - **The width stays.** You can add only what has the same shape. So every sub-layer must return as many numbers as it read: `d_model` of
#   them for each token, from the first block to the last. NumPy does not enforce this. Give it (3, 4) plus (4,), or plus (3, 1), and it stretches the smaller
#   array over the larger one without a word. You will guard against that.
# - **The sub-layer is asked once.** If *f* uses dropout, it draws a new mask at each call. Two calls are two different changes.
#
# The block of the paper also has a norm beside every add: before *f* (**pre-norm**) or after the add (**post-norm**). It comes in lesson 2. The function below is the add alone.

# %% exercise="residual"

# %% [markdown]
# ## A ruler for gradients
#
# How much does output *i* move when input *j* moves a little? That number is a slope, and a function with *n* inputs and *m* outputs
# has *m* times *n* of them. Written as a table they are the **Jacobian**
#
# $$J_{ij} = \frac{\partial f_i}{\partial x_j}$$
#
# Read aloud: *J i j is how fast output i grows when input j grows*. Rows are outputs, columns are inputs: **(out, in)**. If *x* moves by a small
# column vector *v*, then *f(x)* moves by *J v*.
#
# **By hand.** Here is the smallest feed-forward network of this course. It reads two numbers (*a*, *b*), has three hidden units and returns two numbers:
#
# $$h_1 = \text{ReLU}(a) \qquad h_2 = \text{ReLU}(b - 3) \qquad h_3 = \text{ReLU}(b - a) \qquad f(a, b) = (h_1 + h_3,\; h_2 + h_3)$$
#
# ReLU keeps positive numbers and turns negative ones into 0. At (1, 2) the hidden units are 1, 0 and 1, so *f* is (2, 1). Now move one input at a time.
#
# - *a* grows by a little: $h_1$ grows by the same, $h_3$ shrinks by the same, $h_2$ sleeps. The outputs move by 0 and by -1. That is column 1.
# - *b* grows by a little: $h_3$ grows by the same, $h_2$ still sleeps. Both outputs move by 1. That is column 2.
#
# $$J = \begin{pmatrix} 0 & 1 \\ -1 & 1 \end{pmatrix} \qquad \text{with the residual, } x + f(x): \quad \begin{pmatrix} 1 & 1 \\ -1 & 2 \end{pmatrix}$$
#
# With the residual, each input also moves its own output directly. That adds 1 on the diagonal: it adds the identity matrix *I*.
#
# ### Measured, not derived
#
# You can measure a slope without any rule of calculus: step up by *h*, step down by *h*, and divide by the distance. This is the **central difference**
#
# $$\text{slope} \approx \frac{f(x + h) - f(x - h)}{2h}$$
#
# Read aloud: *the difference of the two outputs over the distance of the two inputs*.
#
# **By hand,** for the cube of *z* at *z* = 2, where the slope is 12, with *h* = 0.1: 2.1 cubed is 9.261 and 1.9 cubed is 6.859. Their difference 2.402
# over 0.2 is 12.01. The error is 0.01. A step to one side only gives (9.261 - 8) / 0.1 = 12.61. The error is 0.61.
#
# How small should *h* be?

# %% explore="how_small_a_step"
h = np.logspace(-14, -0.3, 300)
one_sided = np.abs(((2 + h) ** 3 - 8) / h - 12)
two_sided = np.abs(((2 + h) ** 3 - (2 - h) ** 3) / (2 * h) - 12)
fig, ax = plt.subplots()
ax.loglog(h, one_sided, ".", ms=3, label="one step, up only")
ax.loglog(h, two_sided, ".", ms=3, label="central: up and down")
ax.axvline(1e-5, color=figures.BLACK, linestyle=":")
ax.text(1.5e-5, 1e-13, "h = 0.00001", fontsize=10)
ax.set(xlabel="step h", ylabel="error of the slope", title="the cube of z at z = 2", ylim=(1e-14, 20))
ax.legend(frameon=False, markerscale=3)
figures.describe(fig, "Error of a measured slope against the step h, both axes logarithmic: the central difference falls twice as steeply and is best near h = 0.00001; for much smaller steps both are lost in rounding.")

# %% [markdown]
# Read the figure from right to left. As *h* shrinks, the one-sided error falls like *h*, and the central error like *h* squared: a step ten times smaller
# makes it a hundred times smaller. Then both turn and grow again. For a tiny *h* the two outputs agree in nearly all their 16 digits, and their difference is only
# rounding noise. *h* = 0.00001 is a good place for central differences.
#
# Your next function is the ruler for every gradient in this course.

# %% exercise="numerical_jacobian"

# %% [markdown]
# ## Backward through the add
#
# Training needs to know how the loss changes when *x* changes. It starts at the end: suppose you know *g*, how the loss changes with the output *y*. What does
# the layer hand down to its input?
#
# In *y = x + f(x)*, *x* reaches *y* in two ways: straight, and through the branch. Each way sends something back, and **where two ways meet, gradients are added**.
#
# - The straight way has the Jacobian *I*. It sends back *g*, untouched.
# - The branch has the Jacobian *J*. It sends back $J^\top g$.
#
# $$\text{gradient at } x \;=\; (I + J)^\top g \;=\; g + J^\top g$$
#
# Read aloud: *the gradient at x is g plus J transposed times g*. The transpose is there because *J* carries small moves from inputs to outputs, and a gradient travels
# from outputs to inputs. The product $J^\top g$ is called a **vector-Jacobian product**, VJP for short. Real code never builds *J*: each function *f* comes with a partner, here called `f_vjp(x, g)`, that turns *g* into $J^\top g$.
#
# **By hand,** for the tiny network at (1, 2) and *g* = (1, 1): the columns of *J* are (0, -1) and (1, 1), so $J^\top g$ = (0 - 1, 1 + 1) = (-1, 2). The straight way adds (1, 1). Together: (0, 3).

# %% explore="two_ways_back"
fig, ax = plt.subplots(figsize=(7, 2.8))
for x, y, text in ((0, 0, "x"), (2, 1, "f"), (4, 0, "+"), (5.6, 0, "y")):
    ax.text(x, y, text, ha="center", va="center", fontsize=14, bbox={"boxstyle": "circle", "fc": "white", "ec": figures.BLACK})
back = {"arrowprops": {"arrowstyle": "->", "color": figures.RED, "lw": 2, "shrinkA": 14, "shrinkB": 14}}
for start, end, bend in (((5.6, 0), (4, 0), 0), ((4, 0), (0, 0), 0), ((4, 0), (2, 1), 0.25), ((2, 1), (0, 0), 0.25)):
    ax.annotate("", xy=end, xytext=start, **{"arrowprops": back["arrowprops"] | {"connectionstyle": f"arc3,rad={bend}"}})
ax.text(4.8, 0.15, "g = (1, 1)", ha="center", color=figures.RED)
ax.text(2, -0.25, "straight way: (1, 1)", ha="center", color=figures.RED)
ax.text(0.75, 1.0, "branch: (-1, 2)", ha="center", color=figures.RED)
ax.text(0, -0.55, "arrives: (0, 3)", ha="center", color=figures.RED, weight="bold")
ax.set(xlim=(-1, 6.2), ylim=(-0.8, 1.4))
ax.axis("off")
figures.describe(fig, "The way back through a residual layer: g = (1, 1) arrives at the add, the straight way hands on (1, 1), the branch hands on (-1, 2), and at x they add up to (0, 3).")

# %% exercise="residual_vjp"

# %% [markdown]
# One word of care. It is often said that a residual connection "adds 1 to the gradient". For a token of one number that is right. For a token of `d_model` numbers the straight way
# has the **matrix** *I* as its Jacobian: it hands on *g* itself, entry by entry. Adding the number 1 would be something else.

# %% [markdown]
# ## A stack is a product
#
# Stack *N* layers. A small move at the bottom is multiplied by the Jacobian of layer 1, then of layer 2, and so on. For column vectors the first layer stands on the right, next to the vector that it meets first:
#
# $$J_\text{plain} = J_N \cdots J_2\, J_1 \qquad\qquad J_\text{residual} = (I + J_N) \cdots (I + J_2)(I + J_1)$$
#
# Read aloud: *multiply the layers' Jacobians, later ones on the left; in a residual stack each factor has the identity added.*
#
# **By hand,** with one number per token and slope 0.5 in all of six layers. Plain: 0.5 to the power 6 is 0.015625. And residual?

# %% [markdown] quiz="six_layers"
# **Predict.** Six residual layers, one number per token, each branch with slope 0.5. How large is the slope of the whole stack?
#
# - [ ] 1: the straight path carries the gradient untouched. :: One path does. But there are others, and all of them add up.
# - [ ] 1.015625: 1 for the straight path, plus what comes through the six branches. :: That would be one residual connection around the whole stack. Here every layer has its own.
# - [ ] 4: 1, plus 0.5 for each layer. :: These are the paths through no branch and through one branch. Paths through two and more branches are missing.
# - [x] 11.4: 1.5 multiplied six times. :: Right: each layer's slope is 1 + 0.5, and 1.5 to the power 6 is 11.390625. It does not vanish. It grows, with every layer.

# %% [markdown]
# The order matters as soon as tokens have more than one number. Let $J_1$ have a single 1 in its top right corner, and $J_2$ a single 1 in its bottom left corner:
#
# $$J_2 J_1 = \begin{pmatrix} 0 & 0 \\ 1 & 0 \end{pmatrix} \begin{pmatrix} 0 & 1 \\ 0 & 0 \end{pmatrix} = \begin{pmatrix} 0 & 0 \\ 0 & 1 \end{pmatrix} \qquad\text{but}\qquad J_1 J_2 = \begin{pmatrix} 1 & 0 \\ 0 & 0 \end{pmatrix}$$

# %% explore="one_number_stacks"
N = np.arange(31)
fig, ax = plt.subplots()
for label, gain, style in (("residual, slope 0.5", 1.5, "-"), ("residual, slope 0.05", 1.05, "--"), ("plain, slope 0.5", 0.5, "-."), ("residual, slope -0.9", 0.1, ":")):
    ax.semilogy(N, gain ** N, style, label=label)
ax.set(xlabel="number of layers", ylabel="slope of the stack (log scale)", ylim=(1e-12, 1e12))
ax.legend(frameon=False, loc="upper left", ncols=2, fontsize=10)
figures.describe(fig, "Slope of a stack of one-number layers against its depth on a logarithmic axis: residual with slope 0.5 explodes, with 0.05 it stays near 1, plain with slope 0.5 vanishes, residual with slope -0.9 vanishes even faster.")

# %% [markdown]
# A straight line on this axis means: the same factor with every layer. Two of the lines are bad news for anyone who believes that a residual connection settles the matter.
#
# - It can **explode**: with slope 0.5 the factor is 1.5.
# - It can **vanish**: with slope -0.9 the factor is 1 - 0.9 = 0.1, and with slope -1 nothing gets through at all. A branch that takes away exactly what comes in leaves nothing.
#
# What the identity does is this: it moves the factor from *J* to *I + J*. If the branches are small, all factors are close to the identity, and so is a product of many of them.

# %% exercise="stack_jacobian"

# %% [markdown]
# ### Five kinds of stack
#
# Now the real thing: blocks with attention and an FFN, random weights, 64 numbers per token, 12 tokens, 8 heads. Each of the two sub-layers of a block counts as one *f* in one of five arrangements. L stands for layer norm, which you will write in lesson 2.
#
# | kind | one sub-layer |
# |---|---|
# | plain | f(x) |
# | plain with a norm | L(f(x)) |
# | residual | x + f(x) |
# | post-norm (the paper) | L(x + f(x)) |
# | pre-norm | x + f(L(x)), and one more L at the very end |
#
# The **gain** says how much longer a small random change of the input has become at the output, on average over directions. It is the size of the stack's Jacobian.

# %% explore="five_stacks"
gains = data("depth_gain")
fig, ax = plt.subplots(figsize=(8, 4.2))
for kind, label, style, height in (
    ("residual", "residual", "-", 5e8),
    ("pre_norm", "pre-norm", "-", 6),
    ("post_norm", "post-norm", "--", 0.7),
    ("plain_norm", "plain with a norm", ":", 0.08),
    ("plain", "plain", "-", 5e-5),
    ("post_norm_straight_path", "post-norm, straight\npath alone", "-.", 1e-6),
):
    (line,) = ax.semilogy(gains["blocks"], gains[kind], style)
    ax.text(24.4, height, label, color=line.get_color(), va="center", fontsize=10)
    print(f"{label:32} 6 blocks: {gains[kind][6]:<9.2g} 24 blocks: {gains[kind][24]:.2g}".replace("\n", " "))
ax.set(xlabel="number of blocks", ylabel="gain (log scale)", xticks=range(0, 25, 4), xlim=(0, 31), ylim=(1e-7, 1e10))
figures.describe(fig, "Gain of random stacks against the number of blocks on a logarithmic axis: residual without a norm explodes; pre-norm, post-norm and plain with a norm stay near 1; plain vanishes, and so does the straight path of post-norm taken alone.")

# %% [markdown]
# These are means over five draws of the weights. Another draw gives other digits, and the same picture. After 24 blocks:
#
# - **plain** has a gain of 0.000045. A loss at the top says next to nothing to the bottom.
# - **residual without a norm** has a gain of five hundred million. The add alone is no cure: the numbers in the stream grow, attention becomes sharper and sharper, and each layer multiplies.
# - **plain with a norm** has 0.62. At the start of training, a norm alone prevents the decay as well.
# - **post-norm** has 0.66 and **pre-norm** 0.96. Both start healthy.
#
# So what are residual connections good for, if a norm alone does it? The gain counts only how *long* a change is after the stack, not whether it still says what it said. Without the add every layer scrambles what the layers below wrote, and must first learn
# to pass it on. With the add, passing on is where every layer begins.
#
# ### Where is the untouched path?
#
# "The gradient flows back untouched along the identity" is true for some stacks and not for others.
#
# - In **y = x + f(x)** and in **pre-norm**, it is true: follow the adds, and nothing stands in the way until the last norm.
# - In **post-norm**, it is not. Every add is followed by a norm, so the straight path is a product of norm Jacobians. Alone it has a gain of 0.11 after 6 blocks and of 0.000007 after 24 (the dash-dotted line). The branches make up for it at the start of training.
#
# There is a price on the other side. In pre-norm nothing ever scales the stream down, so **it is the pre-norm stream that grows**: the typical size of its numbers goes from 1.0 to 5.3 over these 24 blocks. In post-norm it is 1.0 after every block. (Some pages say it the other way round.)
#
# Post-norm needs a warm-up of the learning rate, or it often fails to train when deep; pre-norm trains without one in the experiments of Xiong et al. (2020), though large models still warm up. Neither is simply better: where post-norm does train it can end better (Takase et al., 2022).

# %% [markdown] quiz="zero_branch"
# **Predict.** A block has just been created, and the last weights of its branches are all zero, so *f* returns zeros. What does the block make of *x*?
#
# - [ ] *x*, in pre-norm and in post-norm. :: In pre-norm, yes. In post-norm the sum still goes through the norm.
# - [x] *x* in pre-norm, LayerNorm(*x*) in post-norm. :: Right. Only where no norm stands on the stream does a silent branch leave the token alone.
# - [ ] Zeros, in both. :: That would be a plain layer. Here *x* is added.
# - [ ] LayerNorm(*x*), in both. :: In pre-norm the norm stands inside the branch, and the branch returns zeros.

# %% [markdown]
# ## Edit or rewrite?
#
# If layers edit, a token after the add should still look like the token before. Two numbers per token say how much:
#
# $$\text{relative change} = \frac{\lVert y - x \rVert}{\lVert x \rVert} \qquad\qquad \text{cosine} = \frac{x \cdot y}{\lVert x \rVert \, \lVert y \rVert}$$
#
# Read aloud: *the length of the change over the length of the token*; and *the dot product of before and after, over the product of their lengths*. The bars stand for the length of a vector: the root of the sum of its squares.
# A cosine of 1 means the same direction, 0 a right angle.
#
# **By hand.** (2, 0) became (2.5, -1). The change (0.5, -1) has the length $\sqrt{0.25 + 1}$ = 1.118; the token has the length 2; the relative change is 0.559017. The dot product is 2 times 2.5 plus 0, so 5. The new token has the length $\sqrt{6.25 + 1}$ = 2.693.
# The cosine is 5 / (2 · 2.693) = 0.928477. That is an angle of about 22 degrees.

# %% explore="change_and_angle"
change = np.linspace(0, 1, 200)
fig, ax = plt.subplots()
ax.plot(change, np.degrees(np.arcsin(change)), label="the most that a change can turn x")
ax.plot(0.559017, np.degrees(np.arccos(0.928477)), "o", color=figures.BLACK, label="(2, 0) becomes (2.5, -1)")
ax.set(xlabel="relative change", ylabel="angle between x and y (degrees)", xlim=(0, 1), ylim=(0, 90))
ax.legend(frameon=False)
figures.describe(fig, "The largest angle by which a change can turn a token, against the relative change: a change of half the token's length can turn it by 30 degrees at most; the example, 22 degrees at 0.56, lies below the curve.")

# %% exercise="edit_report"

# %% [markdown]
# ### Track changes in a trained model
#
# The numbers below were *measured elsewhere*, on a released English-German translation model (post-norm): the first layer's attention, on the 12 tokens of "The cat sat on the mat because it was tired." For each token they say how long *x* is, how long the attention output is, and the cosine of *x* with LayerNorm(*x* + attention).

# %% explore="track_changes"
length_x = np.array([19.5, 18.9, 19.6, 19.7, 14.0, 18.3, 19.8, 20.2, 20.3, 18.5, 15.0, 11.4])
length_attention = np.array([9.7, 3.7, 3.7, 9.3, 9.3, 3.2, 3.9, 10.4, 6.5, 2.9, 10.1, 7.2])
cosine = np.array([0.67, 0.71, 0.76, 0.71, 0.62, 0.74, 0.77, 0.72, 0.81, 0.74, 0.66, 0.68])
token = np.arange(1, 13)
fig, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
top.bar(token - 0.2, length_x, width=0.4, label="the token x")
top.bar(token + 0.2, length_attention, width=0.4, label="the change from attention", hatch="//", edgecolor="white")
top.set(ylabel="length", ylim=(0, 27))
top.legend(frameon=False, ncols=2, loc="upper left")
bottom.plot(token, np.degrees(np.arccos(cosine)), "o", label="turned by, after the add and the norm")
bottom.plot(token, np.degrees(np.arcsin(length_attention / length_x)), "_", ms=14, mew=2, label="the most that the add alone can turn")
bottom.set(xlabel="token", ylabel="angle (degrees)", xticks=token, ylim=(0, 75))
bottom.legend(frameon=False, ncols=2, loc="upper left", fontsize=9)
figures.describe(fig, "Measured elsewhere, 12 tokens: the attention output is 0.16 to 0.67 times as long as the token; after add and norm the tokens have turned by 36 to 52 degrees, each of them more than the add alone can turn it.")

# %% [markdown]
# The change is 0.16 to 0.67 times as long as the token: so far, an edit. But after the norm the tokens have turned by 36 to 52 degrees, and that is more than an edit. Look at token 10: a relative change of 0.16 can turn a token by 9 degrees at most, and this one has turned by 42. The rest is the work of the
# norm after the add: it takes the mean away and stretches every feature by a learned factor of its own. In post-norm, add and norm act on the stream together. Keep that in mind when somebody says "layers only edit".

# %% [markdown]
# ### Start as the identity
#
# If branches should be small at the start, why not make them zero? Several methods do: the last matrix of each branch starts at zero, or each branch is multiplied by a learned number that starts at 0. The figure multiplies every branch of a 24-block stack by 0, 0.1 or 1 and asks how far the tokens have moved from the input.
# (The input has been stretched by 2, so that it differs from its own layer norm.)

# %% explore="small_branches"
moved = data("small_branches")
fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.4), sharey=True)
for ax, kind, title in zip(axes, ("pre_norm", "post_norm"), ("pre-norm", "post-norm")):
    for scale, row, style in zip(moved["scales"], moved[kind], ("-", "--", ":")):
        ax.plot(moved["blocks"], row, style, label=f"branches times {scale:g}")
    ax.set(title=title, xlabel="number of blocks", xticks=range(0, 25, 6))
axes[0].set_ylabel("relative change from the input")
axes[0].legend(frameon=False)
figures.describe(fig, "Relative change from the input against depth: with branches times 0 a pre-norm stack does not move at all, a post-norm stack moves by 0.5 at the first norm and then stays; with branches times 0.1 and 1 both move further.")

# %% [markdown]
# With silent branches the pre-norm stack starts as the identity. The post-norm stack starts as LayerNorm(*x*): one move at the first norm, here a relative change of 0.5, and after that nothing. To normalise what is normalised changes nothing.
#
# **DeepNorm** (Wang et al., 2022) keeps post-norm and turns the balance: LayerNorm(α *x* + *f(x)*), with α above 1 and the first weights of the branches shrunk by β. For an encoder of *N* blocks α is the fourth root of 2*N*, and β is 1 over the fourth root of 8*N*.

# %% explore="deepnorm"
print(f"{'N':>5} {'alpha':>7} {'beta':>7}")
for N in (6, 12, 1000):
    print(f"{N:5d} {(2 * N) ** 0.25:7.3f} {(8 * N) ** -0.25:7.3f}")

# %% [markdown]
# For the paper's 6 blocks α is 1.861 and β is 0.380; for 1000 blocks α is 6.687 and β is 0.106. The deeper the stack, the more the stream outweighs each branch. Post-norm Transformers of 1,000 layers were trained this way.
#
# **The core of the lesson ends here.** What follows is stretch: where the gradient really flows, and a network that your own back-propagation trains. The closing section and the written question are at the end of the notebook.

# %% [markdown]
# ## Two ways at every layer
#
# Multiply out the Jacobian of three residual layers:
#
# $$(I + J_3)(I + J_2)(I + J_1) = I \;+\; J_1 + J_2 + J_3 \;+\; J_2 J_1 + J_3 J_1 + J_3 J_2 \;+\; J_3 J_2 J_1$$
#
# Each term is one **path** through the stack. At every layer a path goes around the branch (factor *I*) or through it (factor *J*). That is two ways at each of *N* layers, so there are $2^N$ paths: 8 for three layers, 64 for six. The **length** of a path is the number of branches on it.
# A residual stack therefore acts a little like a crowd of shallow and deep networks at once; Veit et al. (2016) speak of ensemble-*like* behaviour. The paths share their weights, so they are not independent networks.
#
# Suppose that each branch multiplies what comes through by a gain *r*. A path through *k* branches then weighs $r^k$, there are "*N* choose *k*" of them, and all paths together weigh $(1 + r)^N$:
#
# $$\text{share}_k = \binom{N}{k} \frac{r^k}{(1 + r)^N}$$
#
# Read aloud: *the share of length k is the number of ways to pick k of N branches, times r to the power k, over one plus r to the power N*.
#
# **By hand,** for two layers and *r* = 0.5: one path of length 0 weighs 1; two paths of length 1 weigh 0.5 each, 1 together; one path of length 2 weighs 0.25. Together that is 2.25, which is 1.5 squared. The shares are 0.444, 0.444 and 0.111.

# %% [markdown] quiz="typical_length"
# **Predict.** A ResNet of 110 layers has 54 residual blocks of two layers each. Suppose each branch has a gain of 0.25. Through how many of the 54 branches does the gradient go, on average over all paths and their weights?
#
# - [ ] 54: it must pass the whole stack. :: It passes every block, but at each one it may go around the branch.
# - [ ] 27: half of them. :: That is the average if all paths weigh the same, a gain of 1. With a gain of 0.25 long paths weigh far less.
# - [x] About 11. :: Right: at each block the branch has the share 0.25 / 1.25 = 0.2, and 0.2 times 54 is 10.8.
# - [ ] About 1. :: A single path through one branch does weigh more than one through eleven. But there are only 54 of the former, and very many of the latter.

# %% [markdown]
# **A warning before you write it.** For 3000 layers "*N* choose *k*" has hundreds of digits, and $r^k$ is far too small for a float. Their product is an ordinary number. Find a way on which every step is ordinary.

# %% exercise="path_length_share"

# %% explore="path_lengths"
paths = data("path_lengths")
by_gain = dict(zip(paths["gains"], paths["shares"]))
print(f"gain 0.25: {by_gain[0.25][5:18].sum():.1%} of the gradient takes 5 to 17 blocks")
fig, ax = plt.subplots(figsize=(7, 3.6))
ax.axvspan(4.5, 17.5, color=figures.YELLOW, alpha=0.3, label="5 to 17 blocks: 10 to 34 layers")
ax.bar(range(55), by_gain[0.25], label="gain 0.25")
ax.step(range(55), by_gain[1.0], where="mid", color=figures.RED, linestyle="--", label="gain 1: all paths weigh the same")
ax.set(xlabel="branches on the path, of 54", ylabel="share of the gradient", ylim=(0, 0.175))
ax.legend(frameon=False)
figures.describe(fig, "Shares of path lengths in 54 blocks: for gain 0.25 a hump around 11 that lies almost wholly in the band from 5 to 17 blocks, for gain 1 a hump around 27.")

# %% [markdown]
# The coloured band is what Veit et al. measured in a trained ResNet of 110 layers: most of the gradient came through paths that were 10 to 34 layers deep, which is 5 to 17 blocks. This model, with one number *r* for every branch, puts 97.5 % there. There are few very short paths, and the long ones weigh little.
# Those in between carry the gradient, and they are short beside a stack of 54.
#
# The next cell lets you slide the gain. It uses your own function once that passes.

# %% explore="slide_the_gain"
from ipywidgets import SelectionSlider, interact

share_of = own("path_length_share")
shipped = data("path_lengths")
choices = [round(0.05 * i, 2) for i in range(61)] if share_of else [float(r) for r in shipped["gains"]]


def show_shares(r):
    shares = share_of(54, r) if share_of else shipped["shares"][list(shipped["gains"]).index(r)]
    fig, ax = plt.subplots(figsize=(7, 3))
    ax.axvspan(4.5, 17.5, color=figures.YELLOW, alpha=0.3)
    ax.bar(range(55), shares)
    ax.set(xlabel="branches on the path, of 54", ylabel="share", title=f"gain {r}: on average {np.arange(55) @ np.asarray(shares):.1f} branches")
    plt.show()


interact(show_shares, r=SelectionSlider(options=choices, value=0.25, description="gain r"));

# %% [markdown]
# ## All paths of one length, exactly
#
# Real branches are matrices, and no two of them are alike. The sum of all paths of length *k* is then a matrix too, the sum of all products of *k* branches. For two layers the sums for lengths 0, 1 and 2 are
#
# $$I, \qquad J_1 + J_2, \qquad J_2 J_1$$
#
# A third layer is met last. Each path of three layers either goes around it, and then it is a path of the first two, or goes through it, and then it is $J_3$ times a path of the first two:
#
# $$I, \qquad (J_1 + J_2) + J_3\, I, \qquad J_2 J_1 + J_3 (J_1 + J_2), \qquad J_3 (J_2 J_1)$$
#
# Compare this with the eight terms above. Nothing was counted twice, and no path was visited on its own.
#
# For branches that are the number 1, the same rule gives the numbers of paths. It is Pascal's triangle:

# %% explore="pascal"
rows = [[1]]
for _ in range(6):
    rows.append([a + b for a, b in zip([*rows[-1], 0], [0, *rows[-1]])])
fig, ax = plt.subplots(figsize=(7, 4.6))
for n, row in enumerate(rows):
    for k, count in enumerate(row):
        ax.text(k, n, count, ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": figures.BLUE})
arrow = {"arrowstyle": "->", "lw": 2, "shrinkA": 12, "shrinkB": 12}
ax.annotate("", xy=(2, 4), xytext=(2, 3), arrowprops=arrow | {"color": figures.GREEN})
ax.annotate("", xy=(2, 4), xytext=(1, 3), arrowprops=arrow | {"color": figures.RED})
ax.text(2.1, 3.5, "around", color=figures.GREEN, va="center")
ax.text(1.5, 3.18, "through", color=figures.RED, va="center", ha="center", fontsize=9)
ax.set(xlim=(-0.6, 6.6), ylim=(6.6, -0.6), xlabel="length k of the path", ylabel="layers so far", xticks=range(7), yticks=range(7))
ax.grid(False)
figures.describe(fig, "The numbers of paths for 0 to 6 layers form Pascal's triangle; an entry is the one above it, by paths around the new layer, plus the one above and to the left, by paths through it.")

# %% exercise="path_contributions"

# %% [markdown]
# ### A lesion study
#
# If half of the paths avoid any given layer, a residual stack should survive its loss. Veit et al. removed single layers from trained networks: a residual network hardly noticed, while a plain one (VGG) fell to guessing. Try it on random stacks of 24 layers.

# %% explore="lesion"
rng = np.random.default_rng(0)
x = rng.normal(size=(20, 32))
Ws = [rng.normal(size=(32, 32)) / np.sqrt(32) for _ in range(24)]


def through(Ws, skip, strength):
    y = x
    for W in Ws:
        y = skip * y + strength * np.tanh(y @ W)
    return y


fig, ax = plt.subplots()
for label, skip, strength, mark in (("plain", 0, 1, "o"), ("residual", 1, 1, "s"), ("residual, branches times 0.25", 1, 0.25, "^")):
    whole = through(Ws, skip, strength)
    damage = [np.linalg.norm(through(Ws[:i] + Ws[i + 1 :], skip, strength) - whole) / np.linalg.norm(whole) for i in range(24)]
    ax.plot(range(1, 25), damage, mark, label=label)
    print(f"{label:32} median change of the output: {np.median(damage):.2f}")
ax.set(xlabel="layer that was removed", ylabel="relative change of the output", ylim=(0, 2.8), xticks=range(4, 25, 4))
ax.legend(frameon=False, loc="upper left")
figures.describe(fig, "Change of the output when one of 24 layers is removed: in a plain stack about as large as the output itself or larger, in a residual stack around 0.4, with weak branches around 0.15.")

# %% [markdown]
# A relative change of 1.41 is what two unrelated outputs of one length show. The plain stack is there: whichever layer is missing, the result has nothing to do with the old one any more. The residual stack loses a part, and the weaker its branches the smaller that part. Removing one of *N* layers takes away half of all paths,
# but the other half is still there, and short paths are hit less than long ones.

# %% [markdown]
# ## Back-propagation through a whole stack
#
# Time to put it together. One layer is $y = x + \tanh(x W)$, with tokens as rows. Call what goes into tanh $z = xW$, and what comes out $h = \tanh z$. Backward, with *g* the gradient at *y*:
#
# $$\text{at } z: \quad d_z = g \odot (1 - h^2) \qquad\quad \text{for the weights:} \quad d_W = x^\top d_z \qquad\quad \text{at } x: \quad g + d_z W^\top$$
#
# Read aloud: *at z it is g times the slope of tanh, entry by entry; for W it is the layer's input, transposed, times that; at x it is g from the straight way plus that times W transposed*. The slope of tanh is 1 - tanh². (Here tokens are rows, so *W* stands on the right, and its transpose too.)
#
# The gradient at *x* is the *g* of the layer below. Its own input is needed there, so keep the inputs on the way forward. In a plain layer, $y = \tanh(xW)$, the straight way is missing: nothing is added.
#
# **By hand,** one token, one number: *x* = 0.5, *W* = 1, *g* = 1. Then *h* = tanh 0.5 = 0.462117 and the slope is 1 - 0.462117² = 0.786448. So $d_W$ = 0.5 · 0.786448 = 0.393224, and the gradient at *x* is 1 + 0.786448 = 1.786448. And six layers with *W* = 0? No branch sends anything back, and the straight way hands on 1.

# %% explore="slope_of_tanh"
z = np.linspace(-4, 4, 300)
fig, ax = plt.subplots()
ax.plot(z, np.tanh(z), label="tanh z")
ax.plot(z, 1 - np.tanh(z) ** 2, "--", label="its slope")
ax.plot(0.5, 1 - np.tanh(0.5) ** 2, "o", color=figures.BLACK)
ax.annotate("0.786 at z = 0.5", (0.5, 0.786), xytext=(1.4, 0.55), arrowprops={"arrowstyle": "->"})
ax.set(xlabel="z", ylabel="value")
ax.legend(frameon=False)
figures.describe(fig, "tanh and its slope: the slope is 1 at z = 0, 0.786 at 0.5, and almost 0 beyond 3, where tanh is flat and sends nothing back.")

# %% exercise="stack_backward"

# %% [markdown]
# Trust, but measure: your ruler from the second exercise against your back-propagation.

# %% explore="gradient_check"
rng = np.random.default_rng(4)
x, g = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
Ws = [rng.normal(size=(3, 3)) for _ in range(4)]


def loss(flat):
    y = flat.reshape(2, 3)
    for W in Ws:
        y = y + np.tanh(y @ W)
    return np.array([(g * y).sum()])


measure, back = own("numerical_jacobian"), own("stack_backward")
if measure and back:
    measured, derived = measure(loss, x.ravel())[0], back(x, Ws, g)[0].ravel()
    print("measured", measured.round(6))
    print("derived ", np.round(derived, 6))
    print(f"largest difference: {np.abs(measured - derived).max():.1e}")
else:
    print("Once numerical_jacobian and stack_backward pass their checks, run this cell again.")

# %% [markdown]
# ### Does depth learn?
#
# Four inputs are +1 or -1, in all 16 combinations. The target is their product: +1 if the number of minus signs is even, else -1. This is the **parity** task. No single input says anything about it.
#
# The next cell trains plain and residual stacks of 2 to 32 layers with your own `stack_backward`, in about ten seconds (before yours passes it shows a run that was made earlier). The step rule is Adam: it keeps a running mean of each gradient and divides it by its typical size. Every stack gets the same rule and 300 steps, and its weights are drawn in the
# same way: small, so that a plain layer about halves what goes through it.

# %% explore="training_run"
import itertools

depths, steps, rate, d = (2, 4, 8, 16, 32), 300, 0.003, 16
signs = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
x = np.zeros((16, d))
x[:, :4], x[:, 4] = signs, 1.0  # four signs, and a constant 1
target = signs.prod(axis=1)


def train(n, residual, backward):
    rng = np.random.default_rng(0)
    params = [rng.normal(size=(d, d)) / (2 * np.sqrt(d)) for _ in range(n)] + [rng.normal(size=d) / np.sqrt(d)]
    mean, square = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    losses = []
    for t in range(1, steps + 1):
        *Ws, readout = params
        y = x
        for W in Ws:
            y = np.tanh(y @ W) + (y if residual else 0)
        error = y @ readout - target
        losses.append((error**2).mean())
        slope = 2 * error / len(error)
        gradients = [*backward(x, Ws, np.outer(slope, readout), residual)[1], y.T @ slope]
        for i, gradient in enumerate(gradients):
            mean[i] = 0.9 * mean[i] + 0.1 * gradient
            square[i] = 0.999 * square[i] + 0.001 * gradient**2
            size = np.sqrt(square[i] / (1 - 0.999**t)) + 1e-8
            params[i] = params[i] - rate * mean[i] / (1 - 0.9**t) / size
    return losses[::5]


backward, earlier = own("stack_backward"), data("training_run")
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
for ax, kind in zip(axes, ("plain", "residual")):
    for i, (n, style) in enumerate(zip(depths, ("-", "--", "-.", ":", "-"))):
        losses = np.array(train(n, kind == "residual", backward) if backward else earlier[kind][i])
        ax.semilogy(np.arange(0, steps, 5), np.maximum(losses, 1e-6), style, color="C6" if n == 32 else f"C{i}", label=f"{n} layers")
        learned = np.flatnonzero(losses < 0.05)
        print(f"{kind:9} {n:2d} layers: loss below 0.05 " + (f"after about {5 * learned[0]} steps" if len(learned) else "never"))
    ax.set(title=kind, xlabel="training step")
axes[0].set_ylabel("mean squared error (log scale)")
axes[0].legend(frameon=False, fontsize=8, loc="lower left")
figures.describe(fig, "Loss against training step for 2 to 32 layers: plain stacks learn up to 8 layers, get stuck with 16 and stay at a loss of 1 with 32; residual stacks all learn, and the deeper the faster.")

# %% [markdown]
# What to look at:
#
# - **Plain.** Up to 8 layers it learns. With 16 it gets stuck on the way. With 32 the loss stays at 1, which is what the answer 0 to everything costs. Each layer halves what goes through, forward and backward; 0.5 to the power 32 is 2.3e-10. What comes out no longer depends on what went in, and the gradient that comes back is as small.
# - **Residual.** All depths learn, and the deepest learns first, after about 25 steps. It starts with the largest loss, though: its output has grown through 32 adds. That is the explosion from above, and here it is mild enough to train away.
#
# (The spikes far down do not matter: an error of 0.001 is already right for all 16 rows.) One draw of the weights proves little. Change the seed inside `train` and run the cell again: 16 plain layers do learn in some draws, 32 did in none of the four that were tried while this lesson was written. Larger weights help the plain stack, up to a point. Good initialisation, norms and residual connections all fight the same decay; residual connections do it at every depth.

# %% [markdown]
# ## What you now know
#
# - A sub-layer returns a change of its input's shape; the stream is what is handed from add to add.
# - Backward, the add sends *g* both ways, and what returns is added: *g* + *J*ᵀ*g*. The straight path's Jacobian is the matrix *I*.
# - A stack is a product, of *J* or of *I + J*. The identity removes one cause of vanishing gradients. A residual stack can still vanish or explode.
# - An untouched path exists in y = x + f(x) and in pre-norm. In post-norm every add is followed by a norm.
# - *N* residual layers hold $2^N$ paths that share weights, and the short ones carry most of the gradient.

# %% [markdown] written="untouched_path" points=4
# **In your own words** (150 words at most). A classmate writes: "Thanks to residual connections the gradient reaches the first layer of a Transformer untouched. So it can neither vanish nor explode, with post-norm and pre-norm alike." Which parts are right, for which kind of block, and which are wrong? Give one example of a residual stack whose gradient vanishes, and one whose gradient explodes.
#
# ---
# **Rubric.** One point each:
#
# 1. There is a path whose Jacobian is the identity matrix in y = x + f(x) and in pre-norm (up to the final norm). "Adds the number 1" does not earn the point.
# 2. Not in post-norm: every add is followed by a norm, so the straight path is a product of norm Jacobians.
# 3. The gradient is the sum over all paths, the product of (I + J); one untouched path does not keep that sum from vanishing or exploding.
# 4. Both examples are right: for instance J = -I (nothing arrives) and J = 0.5 with six layers (1.5 to the power 6 is 11.4). Any valid numbers count.
#
# **Model answer.** In y = x + f(x), and in pre-norm, there is one path along the adds with the identity matrix as its Jacobian, so one part of the gradient arrives unchanged. In post-norm a norm follows every add, and the straight path is a product of norm Jacobians; alone it shrinks with depth.
# But the whole gradient is the sum of all paths, the product of the factors I + J. If J = -I in some layer, the branch cancels the straight path and nothing arrives. If J = 0.5 in each of six layers with one number, the gradient is 1.5 to the power 6, about 11.4, and keeps growing with depth. So residual connections remove one cause of vanishing gradients. Small branches, norms and initialisation must do the rest.

# %% [markdown]
# ## In real models
#
# - The **original Transformer** and **BERT** are post-norm. **GPT-2** and most large language models since are pre-norm, with one more norm at the end. tensor2tensor's `transformer_base` went over to pre-norm in its version 2, so "the code of the paper" is not always post-norm.
# - **GPT-2** draws the last matrices of its branches smaller, by 1 over the root of the number of residual layers: the branches start small.
# - **Stochastic depth** (Huang et al., 2016) leaves out layers at random during training. It works because a residual stack survives the loss of a layer.
#
# ## Further reading
#
# - He, Zhang, Ren, Sun (2016), *Deep Residual Learning for Image Recognition*: the idea; and *Identity Mappings in Deep Residual Networks*, by the same authors: why nothing should stand on the straight path.
# - Veit, Wilber, Belongie (2016), *Residual Networks Behave Like Ensembles of Relatively Shallow Networks*: paths and lesions.
# - Vaswani et al. (2017), *Attention Is All You Need*: section 3.1, LayerNorm(x + Sublayer(x)).
# - Xiong et al. (2020), *On Layer Normalization in the Transformer Architecture*: gradients in post-norm and pre-norm at the start.
# - Takase et al. (2022), *On Layer Normalizations and Residual Connections in Transformers*: when post-norm ends better.
# - Wang et al. (2022), *DeepNet: Scaling Transformers to 1,000 Layers*: DeepNorm.
# - Bachlechner et al. (2020), *ReZero is All You Need*; Zhang, Dauphin, Ma (2019), *Fixup Initialization*: stacks that start as the identity.
# - Elhage et al. (2021), *A Mathematical Framework for Transformer Circuits*: the residual stream, read and written by every layer.
