"""What the tests share: how many seeds to try."""

import os

# for the reference; wrong versions and variants use a fortieth
SEEDS = int(os.environ.get("COURSE_SEEDS", "200"))
