"""The cluster of a plan, read from nodes. COMPOSED facts, in the shape of the probe `gpus`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ncdiag.cli.plan import command
from ncdiag.model import NodeFacts, Snapshot
from ncdiag.probes.gpus import collect
from ncdiag.sizing.found import cluster_of
from ncdiag.sizing.gpus import GPUS, GpuError
from tests.probes.machines import eight_rails
from tests.probes.smi import addresses, with_gpus
from tests.sizing.public_models import CONFIGS

LINK = {"number": 0, "active": True, "remote": None, "to_gpu": False, "errors": 0}


def gpu(
    name: str = "NVIDIA H100 80GB HBM3",
    memory_mib: int = 81559,
    sm: int | None = 90,
    nvlinks: list[dict[str, Any]] | None = [LINK],  # noqa: B006
    **more: Any,
) -> dict[str, Any]:
    rest: dict[str, Any] = {"index": 0, "busid": "0000:01:00.0", "uuid": "", "processes": []}
    return {**rest, "name": name, "memory_total_mib": memory_mib, "sm": sm, "nvlinks": nvlinks, "mig": False, **more}


def nodes(**gpus: list[dict[str, Any]]) -> Snapshot:
    return Snapshot(
        {name: NodeFacts(name, {"gpus": {"gpus": found, "hidden": [], "why": None}}) for name, found in gpus.items()}
    )


def test_from_the_driver_of_a_machine() -> None:
    facts = collect(with_gpus(eight_rails(), addresses()).host())
    found = cluster_of(Snapshot({name: NodeFacts(name, {"gpus": facts}) for name in ("gpu01", "gpu02")}))
    assert (found.gpu, found.per_node, found.nodes, found.assumed) == (GPUS["h100"], 8, 2, False)


@pytest.mark.parametrize(
    ("one", "name", "domain", "fp8"),
    [
        (gpu(), "H100", 4, True),
        (gpu("NVIDIA H100 PCIe", nvlinks=None), "H100-PCIE", 1, True),
        (gpu("NVIDIA H100 NVL", 95830), "H100-NVL", 4, True),
        (gpu("NVIDIA H200", 143771), "H200", 4, True),
        (gpu("NVIDIA A100-SXM4-80GB", 81920, 80), "A100", 4, False),
        (gpu("NVIDIA A100-SXM4-40GB", 40960, 80), "A100-40GB", 4, False),
        (gpu("NVIDIA A100-PCIE-40GB", 40960, 80, []), "A100-40GB", 1, False),
        (gpu("NVIDIA GeForce RTX 4090", 24564, 89, None), "RTX4090", 1, True),
        (gpu("NVIDIA L40S", 46068, 89, []), "L40S", 1, True),
        (gpu("NVIDIA RTX 6000 Ada Generation", 49140, 89, []), "RTX6000-ADA", 1, True),
        (gpu("Tesla T4", 15360, 75, []), "T4", 1, False),
        (gpu("Tesla V100-SXM2-16GB", 16384, 70), "V100-16GB", 4, False),
        (gpu("NVIDIA GB200", 189471, 100), "GB200", 72, True),
        (gpu("NVIDIA X900 Prototype", 200000, 110), "NVIDIA X900 Prototype", 4, True),
    ],
)
def test_models(one: dict[str, Any], name: str, domain: int, fp8: bool) -> None:
    found = cluster_of(nodes(gpu01=[one] * 4)).gpu
    assert (found.name, found.domain, found.fp8, found.memory_mib) == (name, domain, fp8, one["memory_total_mib"])


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (nodes(gpu01=[gpu()] * 8, gpu02=[gpu()] * 7), "gpu01: 8 x H100 of 81559 MiB; gpu02: 7 x H100"),
        (nodes(gpu01=[gpu(), gpu("NVIDIA H200", 143771)]), "the GPUs of gpu01 differ"),
        (nodes(gpu01=[gpu(mig=True)]), "MIG is on at gpu01"),
        (nodes(gpu01=[gpu(memory_mib=0)]), "does not tell the memory"),
        (nodes(gpu01=[]), "the GPUs of gpu01 are not known: it has none"),
        (Snapshot({"gpu01": NodeFacts("gpu01", unreachable="no answer within 60 s")}), "no answer within 60 s"),
        (Snapshot({"gpu01": NodeFacts("gpu01", errors={"gpus": "took longer than 60 s"})}), "took longer than 60 s"),
        (
            Snapshot(
                {
                    "gpu01": NodeFacts(
                        "gpu01", {"gpus": {"gpus": [], "why": "nvidia-smi: Driver/library version mismatch"}}
                    )
                }
            ),
            "version mismatch",
        ),
        (Snapshot(), "no node answered"),
    ],
)
def test_what_cannot_be_planned(snapshot: Snapshot, words: str) -> None:
    with pytest.raises(GpuError) as raised:
        cluster_of(snapshot)
    assert words in str(raised.value)


def test_command(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["Llama-3.1-405B"], "max_position_embeddings": 131072}))
    (tmp_path / "snapshot.json").write_text(json.dumps(nodes(gpu01=[gpu()] * 8, gpu02=[gpu()] * 8).as_dict()))
    where = ["--nodes", f"file:{tmp_path}/snapshot.json"]
    done = CliRunner().invoke(command, [str(tmp_path), *where, "--max-model-len", "8192", "--format", "json"])
    said = json.loads(done.stdout)
    assert (said["recommended"]["tp"], said["recommended"]["pp"], said["cluster"]["nodes"]) == (8, 2, 2)
    for wrong in (
        [*where, "--gpus", "H100x8"],
        [*where, "--nodes-count", "2"],
        ["--nodes", "moon:1"],
        ["--nodes", "file:/no/such"],
    ):
        assert CliRunner().invoke(command, [str(tmp_path), *wrong]).exit_code == 2
