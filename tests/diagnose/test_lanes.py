"""Loops that print what PCIe links have beside what they could have."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

ASKED = "$ clush -w ruff[1-3] 'p=/sys/bus/pci/devices/0000:9a:00.0; echo $(cat $p/current_link_speed) x$(cat $p/current_link_width) max $(cat $p/max_link_speed) x$(cat $p/max_link_width)'"
ANSWER = "ruff{}: {} GT/s PCIe x{} max 32.0 GT/s PCIe x16"
LOOP = "ruff1$ for d in mlx5_0 mlx5_1; do echo $d $(cat /sys/class/infiniband/$d/device/current_link_width)/$(cat /sys/class/infiniband/$d/device/max_link_width); done"


def causes(*lines: str) -> list[Cause]:
    raw = "\n".join([*lines, ""]).encode()
    return of_streams([Stream("notes.txt", iter([raw]), raw)]).verdict.causes


def links(*lines: str) -> Cause | None:
    return next((cause for cause in causes(*lines) if cause.cause == "pcie-degraded"), None)


def test_one_node_has_fewer_lanes() -> None:
    found = causes(ASKED, ANSWER.format(1, "32.0", 16), ANSWER.format(2, "32.0", 4), ANSWER.format(3, "32.0", 16))[0]
    assert (found.cause, found.confidence) == ("pcie-degraded", "likely")
    assert found.where == {"node": "ruff2", "device": "0000:9a:00.0"} and "4 of 16 lanes" in found.summary


@pytest.mark.parametrize(
    "lines",
    [
        [LOOP, "mlx5_0 16/16", "mlx5_1 8/16"],
        [LOOP, "mlx5_0 x16 x16", "mlx5_1 x8 x16"],
        [LOOP.replace("current", "-").replace("max", "current").replace("-_", "max_"), "mlx5_0 16 8", "mlx5_1 16 16"],
        ["ruff1: 16.0 GT/s PCIe x16 / 32.0 GT/s PCIe x16 400 Gb/sec (4X NDR)"],
    ],
    ids=["numbers", "with x", "the other way round", "the speed of an adapter"],
)
def test_other_forms(lines: list[str]) -> None:
    found = links(*lines)
    assert found is not None and found.confidence == "likely"


def test_what_all_nodes_have_may_be_the_slot() -> None:
    found = links(ASKED, *(ANSWER.format(node, "32.0", 8) for node in (1, 2, 3)))
    assert found is not None and found.confidence == "possible"


@pytest.mark.parametrize(
    "lines",
    [
        [ASKED, *(ANSWER.format(node, "2.5", 16) for node in (1, 2, 3))],
        [LOOP, "mlx5_0 16/16", "mlx5_1 16/16", "3 of 8 16 lines"],
        ["a grid of x8 by x16 at 32.0 GT/s per lane", "8 16"],
    ],
    ids=["a GPU at rest", "full width", "no links"],
)  # fmt: skip
def test_links_that_are_well(lines: list[str]) -> None:
    assert links(*lines) is None
