"""What could not be had, and why."""

from __future__ import annotations

import errno
import os
from typing import Optional


class HostError(Exception):
    """What could not be had. `str(error)` is a reason fit for a finding."""

    def __init__(self, what: str, reason: str, number: Optional[int] = None) -> None:
        super().__init__("%s: %s" % (what, reason))
        self.what = what
        self.reason = reason
        self.errno = number


class Absent(HostError):
    """There is no such file, folder or program, or it was not recorded."""


class Unreadable(HostError):
    """It is there, and reading it failed; `errno` says how (EACCES, EINVAL, EIO …)."""


class TooLarge(HostError):
    """A file larger than the caller is prepared to take; `content` is what was read of it."""

    def __init__(self, what: str, limit: int, content: bytes) -> None:
        super().__init__(what, "larger than the %d bytes expected of it" % limit)
        self.content = content


class TimedOut(HostError):
    """A command that did not end within its limit; it was ended."""


def error_of(path: str, error: OSError) -> HostError:
    """What an OSError at this path is for a probe."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    kind = Absent if error.errno in (errno.ENOENT, errno.ENOTDIR) else Unreadable
    return kind(path, reason, error.errno)
