"""Exit codes of every command."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    OK = 0
    """Judged; nothing at or above `--fail-on`."""
    FINDING = 1
    """A finding at or above `--fail-on`."""
    USAGE = 2
    """The command line or a file given on it is wrong."""
    INCOMPLETE = 3
    """Something is `unknown`, or a node did not answer."""
    BROKEN = 4
    """ncdiag itself broke."""
    INTERRUPTED = 130
    """Ctrl-C."""
