"""The commands: python -m autograder grade | class | build | pull | demo | lab. See autograder.commands."""

import os
import sys

# The judge works with small matrices: threads would not help, and a process with threads cannot be forked safely.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# jsonschema can do without it: it checks internationalised addresses, and takes 1.5 s to import.
sys.modules.setdefault("rfc3987_syntax", None)

from autograder.commands import main  # noqa: E402  (after what decides how libraries are imported)

sys.exit(main())
