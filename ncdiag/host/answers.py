"""What a machine answers, as plain types, and its text with the secrets masked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ncdiag import redact

_PROC_ENVIRON = re.compile(r"/proc/[^/]+(?:/task/\d+)?/environ$")
_PROC_CMDLINE = re.compile(r"/proc/(?:\d+|self|thread-self)(?:/task/\d+)?/cmdline$")


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def mask(path: str, content: str) -> str:
    """`content` of `path` with its secrets masked."""
    if _PROC_ENVIRON.search(path):
        return redact.nul_separated(content, arguments=False)
    if _PROC_CMDLINE.search(path):
        return redact.nul_separated(content, arguments=True)
    return redact.text(content)


@dataclass(frozen=True)
class Output:
    """What a command printed."""

    rc: int
    out: str
    err: str


@dataclass(frozen=True)
class Stat:
    """What lstat says of one path."""

    kind: str
    """`file`, `folder`, `link`, `character`, `block`, `socket`, `fifo`."""
    mode: int
    """Permission bits, e.g. 0o666."""
    uid: int
    gid: int
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Space:
    """What statvfs says of the file system that holds one path."""

    total_bytes: int
    free_bytes: int
    """Free for an unprivileged user."""
    inodes: int
    inodes_free: int
