"""Without PyTorch there is nothing to compare with: the default tests pass this folder by."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
