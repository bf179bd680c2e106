"""Exit codes of every command."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    OK = 0
    """Judged; nothing at or above `--fail-on`."""
    FINDING = 1
    """A finding at or above `--fail-on`; a sure or likely cause; a plan that does not fit."""
    USAGE = 2
    """The command line or a file given on it is wrong."""
    INCOMPLETE = 3
    """Something is `unknown`, a cause is only possible, or a node did not answer."""
    BROKEN = 4
    """ncdiag itself broke."""
    INTERRUPTED = 130
    """Ctrl-C."""


GOOD = ("healthy", "slow-not-hung")
"""Causes that are no fault."""


def of_cause(slug: str, confidence: str) -> Exit:
    """Of the first of the ranked causes, for every command that ends in such a list: what is only possible carries no alarm."""
    if slug in GOOD:
        return Exit.OK
    if slug == "unresolved" or confidence == "possible":
        return Exit.INCOMPLETE
    return Exit.FINDING


def of_outcome(outcome: str) -> Exit:
    """That of a start by how it ended: `ready`, `finished`, `ended` (nothing had come up), `interrupted`, else it failed."""
    codes = {"ready": Exit.OK, "finished": Exit.OK, "ended": Exit.INCOMPLETE, "interrupted": Exit.INTERRUPTED}
    return codes.get(outcome, Exit.FINDING)
