from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ncdiag.host import Host

from .judged import collected, judged


def shard(path: Path, values: int = 16, cut: int = 0) -> None:
    """A safetensors file of one float32 tensor, `cut` bytes short."""
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}
    ).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(4 * values)
    path.write_bytes(content[: len(content) - cut])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (folder / "tokenizer.json").write_text("{}")
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name in names:
        shard(folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": names[0], "b": names[1]}}))
    return folder


def look(folder: Path | str) -> dict[str, str | None]:
    """status -> cause of the gravest finding."""
    facts = collected("model-path", Host(model=str(folder)))
    assert not facts.errors
    findings = judged("model-path", {"a": facts.facts["model-path"]})
    return {finding.status.value: finding.cause for finding in findings}


def test_whole_model(model: Path) -> None:
    assert look(model) == {"ok": None}


def test_links_as_in_a_hub_cache(model: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in model.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert look(snapshot) == {"ok": None}
    (model / "model-00002-of-00002.safetensors").unlink()
    assert look(snapshot) == {"fail": "weights-corrupt"}


@pytest.mark.parametrize("cut", [1, 64, 70, 200])
def test_truncated_shard(model: Path, cut: int) -> None:
    shard(model / "model-00002-of-00002.safetensors", cut=cut)
    assert look(model) == {"fail": "weights-corrupt"}


def test_garbage_for_a_shard(model: Path) -> None:
    (model / "model-00001-of-00002.safetensors").write_bytes(b"<html>503</html>" * 10)
    assert look(model) == {"fail": "weights-corrupt"}


def test_missing_shard_and_missing_folder(model: Path) -> None:
    (model / "model-00001-of-00002.safetensors").unlink()
    assert look(model) == {"fail": "model-path-missing"}
    assert look(model / "no") == {"fail": "model-path-missing"}
    assert look("meta-llama/Llama-3.1-8B") == {"skip": None}


def test_no_tokenizer_no_config(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert look(model)["warn"] == "model-path-missing"
    (model / "config.json").unlink()
    assert look(model) == {"fail": "model-path-missing"}


def test_nodes_that_differ(model: Path) -> None:
    facts = collected("model-path", Host(model=str(model))).facts["model-path"]
    other = {**facts, "config": "0" * 16}
    findings = judged("model-path", {"a": facts, "b": facts, "c": other})
    (finding,) = [finding for finding in findings if finding.status.value == "fail"]
    assert finding.where["node"] == "c" and "config.json" in finding.summary
