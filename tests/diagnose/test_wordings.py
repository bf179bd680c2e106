"""Single wordings of many programs and versions, each with the cause that must come out first (wordings.yaml)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.diagnose.test_variants import causes_of, no_other_sure

WORDINGS = yaml.safe_load((Path(__file__).parent / "wordings.yaml").read_text())


@pytest.mark.parametrize("entry", WORDINGS, ids=[f"{entry['cause']}-{index}" for index, entry in enumerate(WORDINGS)])
def test_wording(entry: dict[str, str]) -> None:
    causes = causes_of({"a": entry["text"]})
    assert causes[0].cause == entry["cause"], [(cause.cause, cause.confidence, cause.summary) for cause in causes]
    no_other_sure({"a": entry["text"]}, {entry["cause"]})
