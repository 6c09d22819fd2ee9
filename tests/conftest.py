"""What the tests share: how many seeds to try."""

import os

# for the reference; wrong versions and variants use a twentieth
SEEDS = int(os.environ.get("COURSE_SEEDS", "100"))
