"""config.json as facts: read, absent, damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.host import Host
from ncdiag.probes.model_config import collect


@pytest.mark.parametrize(
    "content, config, error",
    [
        ('{"num_attention_heads": 32}', {"num_attention_heads": 32}, None),
        (None, None, "No such file or directory"),
        ("{", None, "not JSON"),
        ("[1]", None, "holds a list"),
    ],
)
def test_facts(tmp_path: Path, content: str | None, config: object, error: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    facts = collect(Host(model=str(tmp_path)))
    assert (
        facts["config"] == config
        and (error is None) == (facts["error"] is None)
        and (error or "") in (facts["error"] or "")
    )


def test_name_of_a_hub_is_not_a_folder() -> None:
    assert collect(Host(model="org/model")) == {"path": None, "config": None, "error": None}
