"""Files that people name: only regular ones are opened, so that a pipe, a device or a socket in their place holds nothing up."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISDIR, "a folder"),
)
WANTED = "a regular file is wanted: save what it gives to one first"


def must_be_regular(path: str) -> None:
    """Nothing where `path` is a regular file, or /dev/null as an empty one. Raises OSError, its `strerror` fit for people."""
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or os.path.realpath(path) == os.devnull:
        return
    kind = next((words for holds, words in _KINDS if holds(mode)), "neither file nor folder")
    raise OSError(errno.EINVAL, f"{kind}; {WANTED}", path)


def open_regular(path: str) -> BinaryIO:
    """The file, to read. Raises OSError as `must_be_regular` does."""
    must_be_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return os.fdopen(descriptor, "rb")


def must_be_writable(path: str) -> None:
    """Nothing where `path` can be written or made. Touches nothing. Raises OSError, its `strerror` fit for people."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise OSError(errno.ENOENT, f"there is no folder {folder}", path) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"the folder {folder} is not writable", path) from None
        return
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "a folder", path)
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "a block device", path)
    if not os.access(path, os.W_OK):
        raise OSError(errno.EACCES, "not writable", path)
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        _must_be_read(path)


def _must_be_read(path: str) -> None:
    """A pipe takes what is written only while somebody reads it. Raises OSError."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise OSError(error.errno, "a pipe or socket that nobody reads", path) from None
