from __future__ import annotations

from typing import Any

import pytest

from ncdiag.host import Host

from .judged import collected, judged, statuses

GOOD = {
    "synchronised": True,
    "max_error_s": 0.01,
    "offset_s": 0.0,
    "daemons": ["chronyd"],
    "processes_seen": True,
    "error": None,
}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({}, "ok", "chronyd"),
        ({"max_error_s": 3.0}, "warn", "has not synchronised"),
        ({"synchronised": False, "daemons": []}, "warn", "no time daemon runs"),
        ({"synchronised": False, "daemons": [], "processes_seen": False}, "warn", "visible from here"),
        ({"synchronised": None, "error": "Operation not permitted"}, "unknown", "not permitted"),
    ],
)
def test_table(change: dict[str, Any], status: str, words: str) -> None:
    findings = judged("clock", {"a": {**GOOD, **change}})
    assert statuses(findings) == [status]
    assert words in findings[0].summary


def test_asks_the_real_kernel() -> None:
    facts = collected("clock", Host()).facts["clock"]
    assert facts["synchronised"] in (True, False) and facts["max_error_s"] >= 0 and facts["error"] is None
