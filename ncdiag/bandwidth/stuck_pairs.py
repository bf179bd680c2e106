"""What pairs that got stuck say: about the node that is in all of them, or about themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.bandwidth.symptoms import Symptoms
from ncdiag.model import Finding, fail, warn
from ncdiag.nodeset import counted

SOURCE = "pairs of ncdiag bandwidth"
Tests = Sequence[Mapping[str, Any]]
"""As `Isolation.tests`."""
OTHER_REASONS = ("cpu", "lossy", "rdma-errors")
"""Kinds of symptoms that say more than the standstill does."""


def node(name: str, tests: Tests, symptoms: Symptoms) -> Finding | None:
    """A node that got stuck with others; None: it seldom did or never got anywhere at all, or its symptoms say why."""
    own = [test for test in tests if name in test["nodes"] and not test["rail"]]
    stuck = [test for test in own if test["busbw_gbytes_s"] is None]
    ended = [test for test in own if test["busbw_gbytes_s"] is not None]
    passed = [test.get("passed_bytes") for test in stuck]
    small = min((size for size in passed if size), default=None) if all(passed) else None
    if len(stuck) < max(len(ended), 1) or (not ended and small is None) or symptoms.kind in OTHER_REASONS:
        return None
    partners = ", ".join(dict.fromkeys(other for test in stuck for other in test["nodes"] if other != name))
    stages = ", ".join(dict.fromkeys(test["stage"] for test in stuck if test["stage"]))
    at = f" ({stages})" if stages else ""
    every = all(name in test["nodes"] for test in tests if test["busbw_gbytes_s"] is None)
    told = f"{name} {'is in every pair that got stuck:' if every else 'got stuck'} with {partners}{at}"
    if small is not None:
        told += f"; smaller messages, of {small} bytes, pass"
    if ended:
        again = sum(test["retransmitted"] for test in ended)
        told += f"; tried again it came to an end {len(ended)} of {counted(len(own), 'time')}, with {counted(again, 'TCP segment')} sent again"
    others = sum(name not in test["nodes"] and test["busbw_gbytes_s"] is not None for test in tests)
    if others:
        told += f"; {counted(others, 'pair')} without it came to an end"
    if small is None:
        return fail(
            told, name, source=SOURCE, cause="unresolved", remedy=f"Look at {name} by itself: address, firewall, link."
        )
    remedy = (
        f"Compare the MTU of {name}'s interface with the others' and with the switch (ip link), "
        "and try a full packet that must not be split: ping -M do -s MTU-28."
    )
    return fail(told, name, source=SOURCE, cause="mtu-mismatch", remedy=remedy)


def pair(names: Sequence[str], tests: Tests) -> Finding:
    """Two nodes that got stuck with each other where no node is in all such pairs, or both are."""
    one, other = names
    own = [test for test in tests if set(test["nodes"]) == set(names) and not test["rail"]]
    stages = ", ".join(dict.fromkeys(test["stage"] for test in own if test["stage"]))
    stuck = sum(test["busbw_gbytes_s"] is None for test in own)
    at = f" ({stages})" if stages else ""
    return warn(
        f"{one} and {other} got stuck with each other in {stuck} of {counted(len(own), 'test')}{at}; no single node explains it",
        one,
        peer=other,
        source=SOURCE,
        cause="unresolved",
        remedy="Test these two by themselves, with a longer --pair-timeout: ncdiag bandwidth --isolate always --nodes …",
    )
