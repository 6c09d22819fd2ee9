"""What the tests share: how many seeds to try."""

import os

SEEDS = int(
    os.environ.get("COURSE_SEEDS", "200")
)  # for the reference; wrong versions and variants use a fortieth
