"""What `ncdiag topo` shows can be read without NCCL's source: every name of a path stands in the legend."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from ncdiag.cli.topo import command
from ncdiag.nccl.rules import MEANINGS
from ncdiag.report.topology import legend_as_text
from tests.nccl_topology import machines


def shown(text: str, tmp_path, *arguments: str) -> tuple[str, str]:
    """The drawing, and the legend below it."""
    path = tmp_path / "topo.xml"
    path.write_text(text)
    done = CliRunner().invoke(
        command, [str(path), *arguments], obj={"quiet": True, "verbose": 0, "color": "never"}, standalone_mode=False
    )
    drawing, title, legend = done.output.partition("NCCL's paths, from near to far\n")
    assert title, done.output
    return drawing, legend


@pytest.mark.parametrize("machine", ["grace", "flat_cloud"])
@pytest.mark.parametrize("version", ["2.18.3", "2.26.2", "2.28.9", "2.30.7"])
def test_every_path_is_explained(machine: str, version: str, tmp_path) -> None:
    drawing, legend = shown(getattr(machines, machine)(), tmp_path, "--nccl-version", version)
    named = {kind for kind in MEANINGS if re.search(rf"(?<![\w/-]){kind}(?![\w/-])", drawing)}
    assert named and named == {line.split()[0] for line in legend.splitlines() if line.split()}
    for kind in named:
        assert re.search(rf"^{kind} +{re.escape(MEANINGS[kind])}", legend, re.M)


def test_grace_names_its_way_through_the_cpu(tmp_path) -> None:
    drawing, legend = shown(machines.grace(), tmp_path)
    assert "P2C" in drawing and "P2C  chip-to-chip to the CPU, then PCIe" in legend


def test_only_names_by_themselves_are_paths() -> None:
    assert legend_as_text("NCCL_NET_GDR_LEVEL NET/IB PIXELS /SYS", color=None) == ""
    assert legend_as_text("path in / out\nPIX / NET", color=None).split("\n")[1:3] == [
        "PIX  at most one PCIe switch",
        "NET  only the network",
    ]


def test_a_level_that_is_none_names_those_of_the_version(tmp_path) -> None:
    path = tmp_path / "topo.xml"
    path.write_text(machines.grace())
    runner = CliRunner()
    for version, known in (("2.30.7", "P2C PXN PHB SYS"), ("2.18.3", "PXB PXN PHB SYS")):
        done = runner.invoke(command, [str(path), "--nccl-version", version, "--gdr-level", "near"], obj={})
        assert done.exit_code == 2 and done.output.rstrip().endswith(known), done.output
