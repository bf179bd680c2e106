from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import Any

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Snapshot
from ncdiag.nccl import dcb
from ncdiag.nccl.ethtool import statistics
from ncdiag.tree import open_tree
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses

PROTECTED = {"rx_prio3_pause": 0, "tx_prio3_pause": 5, "rx_prio0_packets": 10**9, "rx_prio3_packets": 10**9}
OPEN: dict[str, int] = {"rx_prio0_packets": 10**9}


def machine(name: str = "node1", told: dict[str, Any] | None = PROTECTED, **environ: str) -> Machine:
    one = Machine(name).environ(**environ).card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2")
    if told is not None:
        one.meta["answers"]["ethtool statistics of eth2"] = told
    return one


@pytest.mark.parametrize(
    ("told", "environ", "status"),
    [
        (PROTECTED, {"NCCL_IB_TC": "104"}, "ok"),
        (PROTECTED, {}, "warn"),
        (OPEN, {}, "ok"),
        ({**OPEN, "rx_discards_phy": 5000}, {}, "warn"),
        ({**OPEN, "rx_discards_phy": 5}, {}, "ok"),
        ({**OPEN, "tx_pause_storm_error_events": 1}, {}, "warn"),
        (None, {}, "unknown"),
    ],
)
def test_one_node(told: dict[str, Any] | None, environ: dict[str, str], status: str) -> None:
    findings = judged("roce-lossless", machine(told=told, **environ))
    assert statuses(findings) == [status]
    graver(findings)


def test_class_forced_in_the_driver() -> None:
    one = machine()
    base = one.tree.links["/sys/class/infiniband/mlx5_0"]
    one.file(f"{base}/tc/1/traffic_class", "Global tclass=104\n")
    assert statuses(judged("roce-lossless", one)) == ["ok"]


def test_vendor_files_count() -> None:
    one = machine(told=OPEN)
    base = one.tree.links["/sys/class/net/eth2"]
    one.file(f"{base}/qos/pfc", "0 0 0 1 0 0 0 0\n")
    for side in ("roce_np", "roce_rp"):
        one.file(f"{base}/ecn/{side}/enable/3", "1\n")
    (finding,) = graver(judged("roce-lossless", one))
    assert "priority 3" in finding.summary


def test_nodes_that_differ() -> None:
    nodes = [machine(name, NCCL_IB_TC="104") for name in ("a", "b")] + [machine("c", told=OPEN, NCCL_IB_TC="104")]
    assert [finding.where["node"] for finding in graver(judged("roce-lossless", *nodes))] == ["c"]


def test_infiniband_needs_none_of_it() -> None:
    assert statuses(judged("roce-lossless", eight_rails())) == ["skip"]


def test_statistics_of_this_machine() -> None:
    assert statistics("lo") == {}
    with pytest.raises(OSError):
        statistics("nosuch0")


def test_software_devices_have_no_priorities() -> None:
    probes = registry.load()
    tree = Path(__file__).parent.parent / "trees" / "healthy-rocev2-gid3-empty.tar.gz"
    node = collect(Recorded(open_tree(str(tree))), probes.sources(["roce-lossless"]))
    assert statuses(check(Snapshot({"a": node}), probes.chosen(["roce-lossless"]))) == ["skip"]


# DCB


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def answer(pfc: int = 1 << 3, dscp: dict[int, int] | None = None, ets: bool = True) -> bytes:
    """COMPOSED after include/uapi/linux/dcbnl.h: what a driver with DCB answers, behind struct dcbmsg."""
    inner = attribute(2, struct.pack("=BBBxHxx8Q8Q", 8, pfc, 0, 0, *range(16)))
    if ets:
        inner += attribute(
            1, bytes([1, 8, 0, *[0, 50, 0, 50, 0, 0, 0, 0], *[0] * 8, *[0, 2, 0, 2, 0, 0, 0, 0], *range(8), *[0] * 24])
        )
    entries = b"".join(attribute(1, struct.pack("=BBH", 5, priority, one)) for one, priority in (dscp or {}).items())
    inner += attribute(3, attribute(1, struct.pack("=BBH", 1, 4, 0x8906)) + entries)
    return attribute(1, b"eth2\0") + attribute(13, inner)


def test_dcb_is_parsed() -> None:
    told = dcb.parse(answer(dscp={24: 3, 26: 3, 46: 5}))
    assert told["pfc"] == [3] and told["dscp"] == {"24": 3, "26": 3, "46": 5}, "the FCoE entry is of another kind"
    assert told["ets"] == {
        "bandwidth": [0, 50, 0, 50, 0, 0, 0, 0], "algorithm": ["strict", "ETS", "strict", "ETS", *["strict"] * 4], "class": list(range(8)),
    }  # fmt: skip
    assert dcb.parse(b"") == {"pfc": None, "ets": None, "dscp": {}}
    assert dcb.parse(answer(ets=False)[:40])["ets"] is None


@pytest.mark.parametrize(
    ("traffic_class", "status", "words"),
    [
        ("104", "ok", ""),
        ("96", "ok", ""),
        ("106", "ok", ""),
        ("184", "warn", "DSCP 46, which the cards put in priority 5"),
        ("4", "warn", "DSCP 1, which the cards put in priority 0"),
        ("", "warn", "set NCCL_IB_TC to 104 (DSCP 26"),
    ],
)
def test_the_class_against_the_cards_own_table(traffic_class: str, status: str, words: str) -> None:
    one = machine(told=None, **({"NCCL_IB_TC": traffic_class} if traffic_class else {}))
    one.meta["answers"]["DCB of eth2"] = dcb.parse(answer(dscp={24: 3, 26: 3, 46: 5}))
    findings = judged("roce-lossless", one)
    assert statuses(findings) == [status]
    assert words in findings[0].summary + str(findings[0].remedy)


def test_a_driver_without_dcb_is_unknown() -> None:
    one = machine(told=None)
    one.meta["answers"]["DCB of eth2"] = {"errno": 95, "reason": "the driver tells nothing of DCB (errno 95)"}
    assert statuses(judged("roce-lossless", one)) == ["unknown"]


def test_the_kernel_here_answers() -> None:
    """No card with DCB is in this machine: the loopback has none, and a link that is not there is another error."""
    with pytest.raises(OSError) as error:
        dcb.ask("lo")
    assert error.value.errno in (errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL)
    with pytest.raises(OSError) as error:
        dcb.ask("nowhere9")
    assert error.value.errno in (errno.ENODEV, errno.EOPNOTSUPP, errno.EPERM)
