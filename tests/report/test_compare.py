"""New, fixed, unchanged: and never `fixed` where nobody looked again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ncdiag.model import Cause, Finding, fail, ok, skip, unknown, warn
from ncdiag.report.compare import Comparison, compare
from ncdiag.report.result import Result
from ncdiag.report.retold import comparison_as_text

MTU = fail("MTU of eth3 is 1500 bytes, of the others 9000", "gpu01", device="eth3", cause="mtu-mismatch")
SHM = warn("/dev/shm has 64 MiB free of 64 MiB", "gpu02", cause="shm-too-small")


def result(*findings: Finding, nodes: tuple[str, ...] = ("gpu01", "gpu02"), probe: str = "one") -> Result:
    return Result("preflight", 1, list(nodes), [replace(finding, probe=finding.probe or probe) for finding in findings])


def counts(comparison: Comparison) -> dict[str, int]:
    return {name: len(items) for name, items in comparison.lists()}


def case(new: int = 0, fixed: int = 0, unchanged: int = 0, not_judged: int = 0) -> dict[str, int]:
    return {"new": new, "fixed": fixed, "unchanged": unchanged, "not_judged": not_judged}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(result(MTU), result(MTU), case(unchanged=1), id="the same"),
        pytest.param(result(ok("all well", "gpu01")), result(MTU), case(new=1), id="new"),
        pytest.param(result(MTU), result(ok("9000 everywhere", "gpu01")), case(fixed=1), id="fixed"),
        pytest.param(result(MTU, SHM), result(SHM), case(fixed=1, unchanged=1), id="one of two"),
        pytest.param(
            result(SHM),
            result(replace(SHM, summary="/dev/shm has 63 MiB free of 64 MiB")),
            case(unchanged=1),
            id="other numbers",
        ),
        pytest.param(
            result(SHM), result(replace(SHM, where={"node": "gpu01"})), case(new=1, fixed=1), id="another node"
        ),
        pytest.param(
            result(MTU), result(ok("well", "gpu02"), nodes=("gpu02",)), case(not_judged=1), id="the node is missing"
        ),
        pytest.param(
            result(MTU),
            result(unknown("eth3 could not be read", "gpu01", device="eth3")),
            case(new=1, not_judged=1),
            id="could not be looked at",
        ),
        pytest.param(
            result(MTU),
            result(unknown("the node could not be read", "gpu01")),
            case(new=1, not_judged=1),
            id="the node could not be looked at",
        ),
        pytest.param(
            result(MTU), result(ok("well", "gpu01"), probe="another"), case(not_judged=1), id="the probe did not run"
        ),
        pytest.param(
            result(unknown("not recorded", "gpu01")), result(ok("well", "gpu01")), case(fixed=1), id="read now"
        ),
        pytest.param(result(skip("no GPU", "gpu01")), result(skip("no GPU", "gpu01")), case(), id="nothing wrong"),
        pytest.param(
            result(MTU), result(skip("eth3 is not used", "gpu01")), case(fixed=1), id="does not apply any more"
        ),
    ],
)
def test_findings(old: Result, new: Result, expected: dict[str, int]) -> None:
    assert counts(compare([old], [new], "old.json")) == expected


def hang(*causes: Cause, kind: str = "hang") -> Result:
    return Result("hang-dump", 1, causes=list(causes), kind=kind, summary="it hangs")


BEHIND = Cause("rank-behind", "likely", "rank 3 is not in the all_reduce", {"rank": 3, "stage": "collective"})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(hang(BEHIND), hang(BEHIND), case(unchanged=1), id="the same"),
        pytest.param(hang(BEHIND), hang(kind="healthy"), case(fixed=1), id="healthy now"),
        pytest.param(hang(BEHIND), hang(kind="unknown"), case(not_judged=1), id="not known now"),
        pytest.param(hang(BEHIND), hang(replace(BEHIND, where={"rank": 4})), case(new=1, fixed=1), id="another rank"),
        pytest.param(
            hang(BEHIND),
            hang(replace(BEHIND, where={"rank": 3, "stage": "ready"})),
            case(unchanged=1),
            id="another stage",
        ),
        pytest.param(
            hang(BEHIND, kind=""),
            hang(Cause("unresolved", "possible", "?"), kind=""),
            case(not_judged=1),
            id="unresolved now",
        ),
        pytest.param(
            hang(BEHIND, kind=""), hang(Cause("healthy", "likely", "it works"), kind=""), case(fixed=1), id="works now"
        ),
    ],
)
def test_causes(old: Result, new: Result, expected: dict[str, int]) -> None:
    assert counts(compare([old], [new], "old.json")) == expected


def test_text_folds_nodes_and_says_what_each_list_means() -> None:
    every = [warn(f"the clock of {node} is not synchronised", node) for node in ("gpu01", "gpu02", "gpu03")]
    comparison = compare([result(MTU)], [result(*every, nodes=("gpu01", "gpu02", "gpu03"))], "old.json")
    text = comparison_as_text(comparison, color=None)
    assert (
        "3 new" in text and "gpu[01-03]" in text and "1 fixed" in text and text.startswith("compared with old.json\n")
    )
