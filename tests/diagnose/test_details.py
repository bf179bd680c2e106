"""Besides the cause: who is named, what is said of it, and on which lines it rests (details.yaml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.diagnose.test_variants import causes_of

ENTRIES = yaml.safe_load((Path(__file__).parent / "details.yaml").read_text())


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["name"] for entry in ENTRIES])
def test_detail(entry: dict[str, Any]) -> None:
    """`where`: what it holds, None for what must not be in it. `says`, `remedy`, `lines`: words of the summary, the remedy, the evidence. `others`: causes that are not listed."""
    causes = causes_of({"a": entry["text"]})
    first = causes[0]
    assert first.cause == entry["cause"], [(cause.cause, cause.confidence, cause.summary) for cause in causes]
    for key, value in entry.get("where", {}).items():
        assert first.where.get(key) == value, first.where
    for words in entry.get("says", []):
        assert words in first.summary, first.summary
    for words in entry.get("remedy", []):
        assert words in first.remedy, first.remedy
    shown = "\n".join(item.text for item in first.evidence)
    for words in entry.get("lines", []):
        assert words in shown, shown
    listed = [cause.cause for cause in causes]
    for cause in entry.get("others", []):
        assert cause not in listed, listed
