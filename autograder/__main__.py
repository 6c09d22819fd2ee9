"""The commands: python -m autograder grade | class | build | pull | demo | lab. See autograder.commands."""

import os
import sys

if __name__ == "__main__":  # what stands here decides how the libraries below are imported
    # The judge works with small matrices: threads would not help, and a process with threads is not forked safely.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # jsonschema can do without it: it checks internationalised addresses, and takes 1.5 s to import.
    sys.modules.setdefault("rfc3987_syntax", None)

    try:
        from autograder.commands import main
    except ModuleNotFoundError as error:
        sys.exit(
            f"{error.name} is not installed for this Python. Run make setup once, then activate the environment in this "
            "terminal: source .venv/bin/activate"
        )

    sys.exit(main())
