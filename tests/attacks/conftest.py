"""These take minutes: `make test` passes them by, `make test-attacks` names the folder and runs them."""

from pathlib import Path


def pytest_ignore_collect(collection_path, config):
    """Whether a file is left out: all of this folder, unless it was asked for by name."""
    here = Path(__file__).parent
    asked = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(path == here or here in path.parents for path in asked) else True
