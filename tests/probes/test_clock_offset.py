"""Clocks of several nodes: who is off, and what the bound of the measurement allows to say."""

from __future__ import annotations

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.fleet import clock
from ncdiag.model import Finding, NodeFacts, Snapshot

PROBES = registry.load()


def judged(**clocks: tuple[float, float]) -> list[Finding]:
    nodes = {
        name: NodeFacts(name, meta={"clock": {"offset_s": offset, "error_s": error}})
        for name, (offset, error) in clocks.items()
    }
    return check(Snapshot(nodes), PROBES.chosen(["clock-offset"]))


@pytest.mark.parametrize(
    "clocks, wanted",
    [
        ({"a": (0.1, 0.2)}, [("skip", None)]),
        ({"a": (0.1, 0.2), "b": (-0.3, 0.2)}, [("ok", None)]),
        ({"a": (90.0, 0.2), "b": (0.0, 0.2)}, [("warn", None)]),
        ({"a": (0.0, 0.2), "b": (0.1, 0.2), "c": (-90.0, 0.3)}, [("warn", "c")]),
        ({"a": (3600.0, 0.2), "b": (3600.1, 0.2), "c": (3600.0, 0.3)}, [("ok", None)]),
        ({"a": (0.0, 0.2), "b": (2.0, 1.5), "c": (0.0, 0.3)}, [("ok", None)]),
        ({"a": (0.0, 0.2), "b": (0.1, 0.2), "c": (1.0, 30.0)}, [("unknown", "c"), ("ok", None)]),
    ],
    ids=["one", "two-agree", "two-differ", "outlier", "only-we-are-off", "inside-the-bound", "too-wide"],
)
def test_statuses(clocks: dict[str, tuple[float, float]], wanted: list[tuple[str, str | None]]) -> None:
    assert [(finding.status.value, finding.where.get("node")) for finding in judged(**clocks)] == wanted


def test_two_that_differ_are_both_named() -> None:
    (finding,) = judged(a=(90.0, 0.2), b=(0.0, 0.2))
    assert "the clock of a is 90.0 s ahead of that of b (+-0.4 s)" in finding.summary and finding.cause == "clock-skew"


def test_bound_holds_whatever_the_way_took() -> None:
    """The node is 5 s ahead; going took 0.9 s, coming back 0.1 s."""
    stamp = clock.read(b"ncdiag-clock 105.9", 100.0, 101.0)
    assert stamp is not None
    told = stamp.as_meta()
    assert abs(told["offset_s"] - 5.0) <= told["error_s"] == 0.5
    assert clock.read(b"ncdiag-clock x", 0, 1) is None and clock.read(b"Welcome", 0, 1) is None
