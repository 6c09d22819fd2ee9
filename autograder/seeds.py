"""The seed of a grading: the same for the same class, lesson, student and file, and not to be guessed."""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from pathlib import Path

SECRET = "class_secret"  # a file beside the gradebook; whoever has it can foretell every case


def class_secret(root: Path) -> bytes:
    """The secret of the class whose course folder is `root`; made on first use, readable by its owner only."""
    path = root / SECRET
    if not path.exists():
        descriptor, made = tempfile.mkstemp(prefix=f".{SECRET}-", dir=root)  # with mode 0600
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        try:
            os.link(made, path)
        except FileExistsError:  # another process was first: its secret holds
            pass
        except OSError:  # a file system without hard links
            os.replace(made, path)
        Path(made).unlink(missing_ok=True)
    return path.read_bytes().strip()


def seed_for(secret: bytes, lesson: str, student: str, attempt: str) -> int:
    """The seed of one grading. attempt: the digest of the file, so that another file gets other cases."""
    message = "\0".join((lesson, student, attempt)).encode("utf-8", "surrogateescape")
    return int.from_bytes(hmac.digest(secret, message, "sha256")[:6], "big")


def fresh_seed() -> int:
    """A seed that nobody knew before."""
    return secrets.randbelow(1 << 48)
