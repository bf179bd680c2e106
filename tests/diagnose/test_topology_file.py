"""NCCL_TOPO_FILE beside the GPUs that nvidia-smi lists."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

SET = "vm3:71:80 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /opt/vendor/small.xml"
PCI = (
    '  <pci busid="{}:00:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16 GT/s" link_width="16"/>'
)
SHOWN = "vm3$ grep busid /opt/vendor/small.xml"
LISTED = "vm3$ nvidia-smi --query-gpu=pci.bus_id,name --format=csv,noheader"
TABLE = "|   0  NVIDIA H200                    On  |   0000{}:00:00.0 Off |                    0 |"


def error(*lines: str) -> Cause | None:
    raw = "\n".join([*lines, ""]).encode()
    causes = of_streams([Stream("facts.txt", iter([raw]), raw)]).verdict.causes
    return next((cause for cause in causes if cause.cause == "topology-file-error"), None)


def listed(*buses: str) -> list[str]:
    return [LISTED, *(f"0000{bus}:00:00.0, NVIDIA H200" for bus in buses)]


def shown(*buses: str, command: str = SHOWN) -> list[str]:
    return [command, *(PCI.format(bus) for bus in buses)]


HERE, THERE = ("0001", "0002", "0003", "000A"), ("0101", "0102")


@pytest.mark.parametrize(
    "given",
    [SET, "NCCL_TOPO_FILE=/opt/vendor/small.xml"],
    ids=["log", "environment"],
)
@pytest.mark.parametrize("gpus", [listed(*HERE), [TABLE.format(bus) for bus in HERE]], ids=["query", "table"])
def test_the_file_of_another_machine(given: str, gpus: list[str]) -> None:
    found = error(given, *gpus, *shown(*THERE))
    assert found is not None and (found.confidence, found.where) == ("likely", {"path": "/opt/vendor/small.xml"})


@pytest.mark.parametrize(
    "lines",
    [
        [SET, *listed(*HERE), *shown(*HERE)],
        [SET, *listed(*HERE), *shown("000a", "000b")],
        [SET, *listed("0002"), *shown(*HERE)],
        [*listed(*HERE), *shown(*THERE)],
        [SET, *listed(*HERE), *shown(*THERE, command=SHOWN.replace("small", "other"))],
        [SET, *listed(*HERE), SHOWN, PCI.format("0101").replace("0x0302", "0x0207")],
    ],
    ids=["the same", "some", "one GPU of them", "not set", "another file", "NICs"],
)
def test_no_error(lines: list[str]) -> None:
    assert error(*lines) is None


def test_few_gpus_may_be_a_part() -> None:
    found = error(SET, *listed("0003"), *shown("0001", "0002"))
    assert found is not None and found.confidence == "possible"
