"""Distances, PXN, NIC choice and GPUDirect, per version, against what NCCL's source says of these machines."""

from __future__ import annotations

import pytest

from ncdiag.nccl.rules import resolve_level, rules_for
from ncdiag.nccl.settings import Settings, integer, settings_from
from ncdiag.nccl.topology_view import GpuView, NicView, View, view
from ncdiag.nccl.topology_xml import parse_topology
from ncdiag.nccl.version import parse_version
from tests.nccl_topology import machines

NEWEST = (2, 30, 7)


def seen(xml: str, version: tuple[int, int, int] = NEWEST, **settings: object) -> View:
    rules = rules_for(version)
    environ = {f"NCCL_{name.upper()}": str(value) for name, value in settings.items()}
    return view(parse_topology(xml), rules, settings_from(environ, rules).settings)


def gpu(shown: View, dev: int) -> GpuView:
    return next(one for one in shown.gpus if one.gpu.dev == dev)


def pair(shown: View, dev: int, net: int) -> NicView:
    return next(nic for nic in gpu(shown, dev).nics if nic.net.dev == net)


def taken(shown: View) -> dict[int | None, list[int]]:
    return {one.gpu.dev: [nic.net.dev for nic in one.own] for one in shown.gpus}


@pytest.mark.parametrize("version", [(2, 18, 3), (2, 21, 5), (2, 27, 3), (2, 28, 3), (2, 29, 2), NEWEST])
def test_eight_rails_each_gpu_takes_the_nic_in_its_switch(version):
    shown = seen(machines.eight_rails(), version)
    assert taken(shown) == {i: [i] for i in range(8)}
    assert pair(shown, 0, 0).distance == "PIX"
    assert pair(shown, 0, 3).distance == "PHB"
    assert pair(shown, 0, 4).distance == "SYS"
    assert all(nic.gdr.receive and nic.gdr.send for one in shown.gpus for nic in one.own)


def test_pxn_reaches_the_other_rails_through_the_gpu_beside_them():
    shown = seen(machines.eight_rails())
    other = pair(shown, 0, 5)
    assert (other.distance, other.used_path) == ("SYS", "PXN")
    assert other.via is not None and other.via.dev == 5
    assert other.gdr.receive, "with PXN the distance of the GPU in between counts"
    without = pair(seen(machines.eight_rails(), pxn_disable=1), 0, 5)
    assert (without.used_path, without.gdr.receive) == ("SYS", False)


def test_p2p_disable_takes_pxn_away_too():
    assert pair(seen(machines.eight_rails(), p2p_disable=1), 0, 5).used_path == "SYS"


def test_no_gdr_sends_the_traffic_through_the_cpu():
    shown = seen(machines.eight_rails(nic_of=lambda i: machines.nic(f"0000:{0x10 + 16 * i:02x}:01.0", i, gdr=0)))
    own = pair(shown, 0, 0)
    assert (own.distance, own.used_path) == ("PIX", "PHB")
    assert not own.gdr.receive and "nvidia_peermem" in own.gdr.reasons[0]


def test_flat_machine_gdr_only_with_the_level():
    assert all(not nic.gdr.receive for one in seen(machines.flat_cloud()).gpus for nic in one.own)
    raised = seen(machines.flat_cloud(), net_gdr_level="PHB")
    assert all(nic.gdr.receive and nic.gdr.send for one in raised.gpus for nic in one.own)
    assert seen(machines.flat_cloud()).gpus[0].own[0].gdr.reasons == ["distance PHB is farther than P2C, the default"]


def test_flat_machine_spreads_the_nics():
    nets = [dev for own in taken(seen(machines.flat_cloud())).values() for dev in own]
    assert sorted(nets) == [0, 1, 2, 3]


def test_far_nic_is_used_by_both():
    shown = seen(machines.other_socket())
    assert taken(shown) == {0: [0], 1: [0]}
    assert pair(shown, 0, 0).distance == "SYS" and pair(shown, 1, 0).distance == "PIX"


def test_two_gpus_of_one_switch_share_four_nics_two_each():
    devices = [machines.gpu(f"0000:1{i}:00.0", i, nvlinks=0) for i in range(2)]
    devices += [machines.nic(f"0000:2{i}:00.0", i, speed=100000) for i in range(4)]
    shown = seen(machines.system([machines.cpu(0, [machines.bridge("0000:0f:00.0", devices)])]))
    assert taken(shown) == {0: [0, 1], 1: [2, 3]}
    everything = seen(
        machines.system([machines.cpu(0, [machines.bridge("0000:0f:00.0", devices)])]), netdevs_policy="ALL"
    )
    assert sorted(taken(everything)[0]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("version", "distance", "gdr"),
    [((2, 18, 3), "PHB", False), ((2, 25, 1), "PHB", False), ((2, 26, 2), "PHB", False), ((2, 27, 3), "P2C", True),
     ((2, 27, 7), "P2C", True), ((2, 28, 9), "P2C", True), ((2, 29, 2), "P2C", True), (NEWEST, "P2C", True)],
)  # fmt: skip
def test_grace_by_version(version, distance, gdr):
    nic = pair(seen(machines.grace(), version), 0, 0)
    assert (nic.distance, nic.gdr.receive) == (distance, gdr)


def test_grace_settings():
    assert pair(seen(machines.grace(), (2, 26, 2), net_gdr_c2c=1), 0, 0).gdr.receive
    assert not pair(seen(machines.grace(), net_gdr_c2c=0), 0, 0).gdr.receive


def test_old_gpus_send_through_host_memory():
    def old(i: int) -> str:
        return machines.gpu(f"0000:{0x10 + 16 * i:02x}:00.0", i, sm=75, nvlinks=0)

    own = pair(seen(machines.eight_rails(gpu_of=old)), 0, 0).gdr
    assert (own.receive, own.send) == (True, False) and "sm 75" in own.reasons[0]
    assert pair(seen(machines.eight_rails(gpu_of=old), net_gdr_read=1), 0, 0).gdr.send
    assert pair(seen(machines.one_gpu(), (2, 18, 3)), 0, 0).gdr.send, "the only GPU of a node counts as connected"


def test_nvlink_ring_has_a_gpu_in_between():
    assert gpu(seen(machines.mesh_of_four()), 0).gpu_paths == {"GPU 1": "NVL", "GPU 2": "NVB", "GPU 3": "NVL"}
    assert gpu(seen(machines.mesh_of_four(), nvb_disable=1), 0).gpu_paths["GPU 2"] == "PHB"


def test_broadcom_switch_of_two_levels_is_one():
    gen4 = 'vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" subsystem_device="0xa096"'
    halves = [
        machines.bridge("0000:11:00.0", [machines.gpu("0000:12:00.0", 0)], gen4),
        machines.bridge("0000:13:00.0", [machines.nic("0000:14:00.0", 0)], gen4),
    ]
    flat = machines.system([machines.cpu(0, [machines.bridge("0000:10:00.0", halves, gen4)])])
    assert pair(seen(flat), 0, 0).distance == "PIX"
    other = machines.system(
        [machines.cpu(0, [machines.bridge("0000:10:00.0", [half.replace("0xc010", "0x8747") for half in halves])])]
    )
    assert pair(seen(other), 0, 0).distance == "PXB"


def test_virtual_device_is_behind_the_cpu():
    virtual = "    <nic>\n" + machines.net(0, name="eth0", gdr=0) + "    </nic>\n"
    shown = seen(
        machines.system(
            [machines.cpu(0, [machines.bridge("0000:0f:00.0", [machines.gpu("0000:10:00.0", 0)]), virtual])]
        )
    )
    assert pair(shown, 0, 0).distance == "PHB"


@pytest.mark.parametrize(
    ("value", "name"),
    [("PIX", "PIX"), ("SYS", "SYS"), ("LOC", "LOC"), ("0", "LOC"), ("1", "PIX"), ("2", "PXB"), ("3", "PHB"), ("4", "SYS"),
     ("9", "SYS"), ("2x", "PXB"), ("phb", None), (" PHB", None), ("NET", None), ("DIS", None), ("", None), ("-1", None)],
)  # fmt: skip
def test_levels(value, name):
    assert resolve_level(value, rules_for(NEWEST)).name == name


def test_level_names_of_the_version():
    assert resolve_level("P2C", rules_for((2, 26, 2))).name is None
    assert resolve_level("P2C", rules_for((2, 27, 3))).name == "P2C"
    read = settings_from({"NCCL_NET_GDR_LEVEL": "phb"}, rules_for(NEWEST))
    assert read.settings.gdr_level is None and "write PHB" in read.notes[0]


@pytest.mark.parametrize(
    ("value", "number"),
    [("1", 1), ("0x10", 16), ("010", 8), ("22abc", 22), ("true", 0), ("", None), ("-2", -2), ("08", 0)],
)
def test_numbers_as_nccl_reads_them(value, number):
    assert integer(value) == number


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.27.3", (2, 27, 3)), ("2.27.3+cuda12.9", (2, 27, 3)), ("v2.18.3-1", (2, 18, 3)), ("22703", (2, 27, 3)), ("2804", (2, 8, 4)),
     ("2.27", (2, 27, 0)), ("none", None), ("", None)],
)  # fmt: skip
def test_versions(text, version):
    assert parse_version(text) == version


def test_defaults_need_no_settings():
    assert settings_from({}, rules_for(None)).settings == Settings()


def test_several_machines_in_one_dump():
    """Multi-node NVLink: numbers repeat from machine to machine, and a NIC of another one is out of reach."""
    second = machines.grace().replace('host_hash="0x10"', 'host_hash="0x20"')
    text = machines.grace().replace("</system>\n", "") + second.replace('<system version="1">\n', "")
    shown = seen(text)
    assert [one.gpu.label for one in shown.gpus] == ["GPU 0/0", "GPU 1/0", "GPU 0/1", "GPU 1/1"]
    first = shown.gpus[0]
    assert [nic.net.label for nic in first.own] == ["0/mlx5_0"]
    assert {nic.net.label: nic.distance for nic in first.nics}["1/mlx5_0"] == "DIS"
