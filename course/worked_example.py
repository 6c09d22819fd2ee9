"""The worked example of lessons 1 to 5: d_model = 4, two tokens, one head, d_ff = 8, post-norm.

Public data, no answers. The weights ("weights H") produce exactly the two matrices that the
published example assumed for the attention and for the FFN. Its other numbers are kept in
PUBLISHED as they were printed; the lesson shows which of them are wrong.
"""

from __future__ import annotations

import numpy as np

X = np.array([[1.0, 0.5, -0.5, 0.2], [0.3, -0.1, 0.8, -0.4]])
NUM_HEADS = 1

W_Q = np.array([[1, 0, -1, 0], [0, 0, 0, -1], [-1, -1, -1, 0], [-1, 0, -1, -1]], dtype=float)
W_K_WITHOUT_FACTOR = np.array([[0, 0, -1, -1], [0, 1, 1, 1], [-1, 0, 0, -1], [1, 0, 0, 0]], dtype=float)
W_K = np.log(3) * W_K_WITHOUT_FACTOR
W_V = np.array([[1, 0, 0, 1], [-1, 0, 0, 0], [0, 0, -1, 0], [1, 1, -1, 1]], dtype=float)
W_O = np.array([[0.1, 0, 0.1, -0.1], [0.1, -0.1, -0.3, -0.3], [-0.2, 0.1, 0.2, 0.3], [0.1, -0.1, 0.1, 0]])

W1 = np.array(
    [
        [1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 1],
        [-1, -1, 1, 1, 0, 0, 0, 0],
        [0, 0, -1, -1, -1, -1, 1, 1],
    ],
    dtype=float,
)
B1 = np.array([-1, -2, -1, -2, -0.5, -1.5, -1, -2])
MEMORIES = np.array(
    [[0.05, -0.12, 0.05, 0.03], [-0.09, 0.09, -0.03, 0], [0.02, -0.02, 0.01, 0.04], [0.5, -0.5, 0.5, -0.5]]
)
W2 = np.stack([MEMORIES, 0.0 - MEMORIES], axis=1).reshape(8, 4)
B2 = np.array([0.01, 0.02, -0.01, 0.03])
GAMMA, BETA = np.ones(4), np.zeros(4)

# in the order of the block's arguments, from W_q to beta2
WEIGHTS_H = (W_Q, W_K, W_V, W_O, W1, B1, W2, B2, GAMMA, BETA, GAMMA, BETA)
# for paper: 1.1 in place of ln 3
WEIGHTS_R = (W_Q, 1.1 * W_K_WITHOUT_FACTOR, *WEIGHTS_H[2:])

# as printed on the page that the example comes from, two decimals (sigma_1: three)
PUBLISHED = {
    "MHA(X)": np.array([[0.12, -0.08, 0.15, -0.03], [0.09, -0.05, 0.11, -0.02]]),
    "X + MHA(X)": np.array([[1.12, 0.42, -0.35, 0.17], [0.39, -0.15, 0.91, -0.42]]),
    "mu_1 of token 1": np.array([0.34]),
    "sigma_1 of token 1": np.array([0.507]),
    "X'": np.array([[1.54, 0.16, -1.36, -0.34], [0.40, -0.52, 1.38, -1.26]]),
    "FFN(X')": np.array([[0.08, -0.12, 0.05, 0.10], [-0.06, 0.09, -0.03, 0.07]]),
    "X' + FFN(X')": np.array([[1.62, 0.04, -1.31, -0.24], [0.34, -0.43, 1.35, -1.19]]),
    "output": np.array([[1.56, 0.10, -1.21, -0.18], [0.38, -0.46, 1.40, -1.22]]),
}
