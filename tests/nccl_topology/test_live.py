"""The tree built from a machine's own facts, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ncdiag.cli import cli
from ncdiag.nccl.rules import rules_for
from ncdiag.nccl.settings import Settings
from ncdiag.nccl.topology_check import check_topology
from ncdiag.nccl.topology_live import build
from ncdiag.nccl.topology_view import View, view
from ncdiag.probes import pci_devices, rdma_devices
from tests.env.clusters import saved, two_nodes
from tests.nccl_topology import machines as dumps
from tests.probes.machines import Machine, eight_rails

TREES = Path(__file__).parent.parent / "trees"


def live(machine: Machine, **environ: str) -> View:
    host = machine.host()
    built = build(pci_devices.collect(host), rdma_devices.collect(host), None, environ, None, True)
    return view(built, rules_for(None), Settings())


def test_eight_rails_from_sysfs() -> None:
    shown = live(eight_rails())
    assert [[nic.net.name for nic in one.own] for one in shown.gpus] == [[f"mlx5_{i}"] for i in range(8)]
    assert all(nic.distance == "PIX" and nic.gdr.receive for one in shown.gpus for nic in one.own)
    assert [cpu.numa for cpu in shown.topology.cpus] == [0, 1]


def test_a_port_that_is_down_or_deselected_is_no_nic() -> None:
    assert len(live(eight_rails(down=[5])).nets) == 7
    assert [net.name for net in live(eight_rails(), NCCL_IB_HCA="=mlx5_2").nets] == ["mlx5_2"]


def test_order_of_devices_by_version() -> None:
    machine = Machine()
    machine.card("mlx5_0", "0000:90:00.0", verbs=0).card("mlx5_1", "0000:10:00.0", verbs=1)
    host = machine.host()
    pci, rdma = pci_devices.collect(host), rdma_devices.collect(host)
    for version, names in (((2, 29, 7), ["mlx5_1", "mlx5_0"]), ((2, 28, 3), ["mlx5_0", "mlx5_1"])):
        assert [net.name for net in build(pci, rdma, None, {}, version).nets()] == names


def test_without_rdma_the_interfaces_are_shown() -> None:
    machine = Machine()
    gpu, nic = machine.switch(0x10)
    machine.gpu("0000:13:00.0", gpu).card("mlx5_0", "0000:13:01.0", nic, layer="Ethernet", netdev="eth2")
    shown = live(machine, NCCL_IB_DISABLE="1")
    assert [net.name for net in shown.nets] == ["eth2"]
    assert shown.topology.remarks and all(net.gdr is False for net in shown.nets)
    (finding,) = check_topology(shown, "a")
    assert finding.status.value == "skip" and "TCP sockets" in finding.summary


def test_nvlinks_from_the_driver() -> None:
    machine = eight_rails()
    host = machine.host()
    links: list[dict[str, Any]] = [
        {"number": i, "active": i < 17, "remote": None, "to_gpu": False, "errors": 0} for i in range(18)
    ]
    gpus = {"gpus": [{"busid": "0000:13:00.0", "index": 0, "sm": 90, "nvlinks": links}]}
    topology = build(pci_devices.collect(host), rdma_devices.collect(host), gpus, {})
    first = topology.gpus()[0]
    assert (first.sm, [(link.count, link.to) for link in first.nvlinks]) == (90, [(17, "nvswitch")])


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["topo", *arguments], input=stdin, standalone_mode=False)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "topo.xml"
    path.write_text(dumps.eight_rails())
    return str(path)


def test_command_text(dump: str) -> None:
    result = run(dump)
    assert result.exception is None and result.return_value == 0
    assert "GPU 7" in result.output and "PIX*" in result.output and "by the rules of 2.30.7" in result.output
    assert "as NCCL 2.32.3 sees it (by the rules of 2.30.7" in run(dump, "--nccl-version", "2.32.3").output


def test_command_json_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "flat.xml"
    path.write_text(dumps.flat_cloud())
    off = json.loads(run(str(path), "--format", "json", "--nccl-version", "2.18.3").output)
    on = json.loads(run(str(path), "--format", "json", "--nccl-version", "2.18.3", "--gdr-level", "PHB").output)
    assert off["machines"][0]["nccl_version"] == "2.18.3"
    answers = [
        [next(iter(gpu["gpudirect"].values()))["receive"] for gpu in data["machines"][0]["gpus"]] for data in (off, on)
    ]
    assert answers == [[False] * 4, [True] * 4]


def test_command_compares_files(dump: str, tmp_path: Path) -> None:
    other = tmp_path / "other.xml"
    other.write_text(
        dumps.eight_rails(nic_of=lambda i: "" if i == 5 else dumps.nic(f"0000:{0x10 + 16 * i:02x}:01.0", i))
    )
    result = run(dump, dump, str(other), "--fail-on", "warn")
    assert result.return_value == 1 and "NICs: 7 x 400 Gb/s, other nodes have 8 x 400 Gb/s" in " ".join(
        result.output.split()
    )


def test_command_reads_stdin_graphs_and_captured_machines() -> None:
    graphs = '<graphs version="1"><graph id="0" pattern="4" nchannels="1" typeintra="NVL" typeinter="PHB"/></graphs>'
    assert "NVL / PHB" in run("-", stdin=graphs).output
    result = run("live", "--nodes", f"file:{TREES / 'pci-switches-numa-8rail.tar.gz'}")
    assert "0000:24:00.0" in result.output and "virtual" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"), [(["/nowhere.xml"], "No such file"), (["live", "--nccl-version", "new"], "2.27.3")]
)
def test_command_mistakes(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert words in str(result.exception)


@pytest.mark.parametrize(("arguments", "words"), [
    (["--gdr-level", "foo"], "there are, in capitals: LOC NVL"), (["--nodes", "ssh:x"], "--nodes holds for `live`"),
    (["--nodes", "local"], "--nodes holds for `live`"), (["--pid", "1"], "--pid holds for `live`"), (["--ssh-user", "x"], "--ssh-user holds"),
])  # fmt: skip
def test_options_that_would_be_ignored(dump: str, arguments: list[str], words: str) -> None:
    assert words in str(run(dump, *arguments).exception)
    assert run(dump, "--gdr-level", "PHB").return_value == run(dump, "--gdr-level", "2").return_value == 0


def test_settings_that_could_not_be_read_are_no_health(tmp_path: Path) -> None:
    path = saved(tmp_path, two_nodes())
    data = json.loads(path.read_text())
    data["nodes"]["gpu01"]["facts"]["nccl-environment"] = {
        "environ": None, "reason": "/proc/7/environ: Permission denied", "absent": [],
    }  # fmt: skip
    data["nodes"]["gpu02"]["errors"]["rdma-devices"] = "no answer within 5 s"
    path.write_text(json.dumps(data))
    result = run("live", "--nodes", f"file:{path}", "--format", "json")
    told = {
        one["where"]["node"]: one["summary"]
        for one in json.loads(result.output)["findings"]
        if one["status"] == "unknown"
    }
    assert result.return_value == 3 and "/proc/7/environ: Permission denied" in told["gpu01"]
    assert told["gpu02"] == "rdma-devices could not be read: no answer within 5 s"


def test_not_a_topology(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    path.write_text("<html/>")
    assert "a topology or graph dump of NCCL is wanted" in str(run(str(path)).exception)
