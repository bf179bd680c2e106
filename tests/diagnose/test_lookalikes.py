"""Texts that read like a known failure and are none: what they must not lead to (lookalikes.yaml)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.diagnose.test_variants import causes_of

ENTRIES = yaml.safe_load((Path(__file__).parent / "lookalikes.yaml").read_text())


@pytest.mark.parametrize("entry", ENTRIES, ids=[f"{entry['not']}-{index}" for index, entry in enumerate(ENTRIES)])
def test_lookalike(entry: dict[str, str]) -> None:
    """`not`: claimed as no more than possible. `first`: what comes out first, where the entry says so."""
    causes = causes_of({"a": entry["text"]})
    claimed = [(cause.cause, cause.confidence, cause.summary) for cause in causes if cause.confidence != "possible"]
    assert entry["not"] not in [cause for cause, _, _ in claimed], claimed
    if "first" in entry:
        assert causes[0].cause == entry["first"], [(cause.cause, cause.confidence) for cause in causes]
