"""Changes NAME=VALUE lines of an environment file (also /etc/nccl.conf) and leaves every other byte as it is."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=")
MAX_BYTES = 1 << 20


def read(path: Path) -> str:
    """The file's text. Raises OSError, and ValueError for what is no environment file."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path} is not a plain file")
    if os.path.getsize(path) > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES} bytes")
    return path.read_text("utf-8", "surrogateescape")


def changed(text: str, settings: Mapping[str, str | None]) -> str:
    """The text with each variable set to its value, or gone where the value is None. The last line of a name counts."""
    kept, pending = [], {name: value for name, value in settings.items() if value is not None}
    for line in reversed(text.splitlines(keepends=True)):
        match = _ASSIGNMENT.match(line)
        name = match.group(1) if match else None
        if match is None or name not in settings:
            kept.append(line)
        elif name in pending:
            kept.append(f"{line[: match.end()]}{pending.pop(name)}\n")
    lines = kept[::-1]
    if lines and not lines[-1].endswith("\n") and pending:
        lines[-1] += "\n"
    return "".join(lines) + "".join(f"{name}={value}\n" for name, value in pending.items())


def difference(path: Path, old: str, new: str) -> str:
    """The lines that change, as a unified diff without context."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), str(path), lineterm="", n=0)
    return "\n".join(lines)


def backup_of(path: Path) -> Path:
    """A free name beside the file, for its old text."""
    real = os.path.realpath(path)
    names = (f"{real}.ncdiag-old-{number}" for number in itertools.count(1))
    return Path(next(name for name in names if not os.path.lexists(name)))


def replace(path: Path, old: str, new: str, backup: Path) -> None:
    """Writes `new` with the old owner and mode, in one step, after the old text was kept in `backup`.

    Raises ValueError when the file is no longer what it was when the change was shown, OSError when it cannot be written.
    """
    real = Path(os.path.realpath(path))
    if read(real) != old:
        raise ValueError(f"{path} has changed meanwhile; look at it again")
    info = os.stat(real)
    _write(os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), old, info)
    descriptor, fresh = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    _write(descriptor, new, info)
    os.replace(fresh, real)


def _write(descriptor: int, text: str, like: os.stat_result) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        if os.geteuid() == 0:
            os.fchown(descriptor, like.st_uid, like.st_gid)
