from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import NodeFacts, Snapshot
from ncdiag.nccl.counters import delta, loss
from ncdiag.registry import load
from ncdiag.tree import open_tree
from tests.probes.machines import graver, statuses

TREES = Path(__file__).parent.parent / "trees"
PROBES = load().chosen(["rdma-counters"])


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("counters-after-10pct-loss", ["warn", "warn"]),
        ("healthy-rocev2-gid3-empty", ["ok"]),
        ("no-rdma-device", ["skip"]),
    ],
)
def test_captured_machines(tree: str, expected: list[str]) -> None:
    node = collect(Recorded(open_tree(str(TREES / f"{tree}.tar.gz")), tree), load().sources(["rdma-counters"]))
    assert statuses(check(Snapshot({tree: node}), PROBES)) == expected


def snapshot(
    layer: str = "Ethernet", uptime: float | None = 864000.0, grown: dict[str, int] | None = None, **values: int
) -> Snapshot:
    port: dict[str, Any] = {
        "device": "mlx5_0",
        "port": 1,
        "state": "ACTIVE",
        "link_layer": layer,
        "values": values,
        "grown": grown or {},
        "unread": 0,
    }
    return Snapshot({"a": NodeFacts("a", {"rdma-counters": {"window_s": 1.0, "uptime_s": uptime, "ports": [port]}})})


@pytest.mark.parametrize(
    ("made", "status", "cause"),
    [
        pytest.param(snapshot(port_xmit_packets=10**9, local_ack_timeout_err=0), "ok", None, id="quiet"),
        pytest.param(snapshot(port_xmit_packets=10**9, local_ack_timeout_err=40), "ok", None, id="one-in-25-million"),
        pytest.param(
            snapshot(port_xmit_packets=10**6, packet_seq_err=400), "warn", "roce-lossless-missing", id="lossy"
        ),
        pytest.param(snapshot(port_xmit_packets=10**6, packet_seq_err=5), "ok", None, id="a-handful"),
        pytest.param(
            snapshot("InfiniBand", port_xmit_packets=10**6, out_of_sequence=4000), "ok", None, id="adaptive-routing"
        ),
        pytest.param(
            snapshot("InfiniBand", port_xmit_packets=10**6, local_ack_timeout_err=99),
            "warn",
            "ib-link-or-hca-fault",
            id="ib-loss",
        ),
        pytest.param(snapshot(local_ack_timeout_err=100), "ok", None, id="ten-a-day"),
        pytest.param(snapshot(local_ack_timeout_err=10**5), "warn", "roce-lossless-missing", id="many-an-hour"),
        pytest.param(snapshot(link_downed=2), "ok", None, id="booted-twice"),
        pytest.param(snapshot(link_downed=40), "warn", "ib-link-or-hca-fault", id="flapping"),
        pytest.param(snapshot(link_downed=8), "ok", None, id="eight-in-ten-days"),
        pytest.param(snapshot(symbol_error=0xFFFF), "unknown", None, id="stuck"),
        pytest.param(snapshot(grown={"link_downed": 1}, link_downed=1), "warn", "ib-link-or-hca-fault", id="flaps-now"),
        pytest.param(
            snapshot(grown={"roce_slow_restart": 9}, roce_slow_restart=9),
            "warn",
            "roce-lossless-missing",
            id="lossy-now",
        ),
        pytest.param(snapshot(grown={"port_xmit_data": 9}, port_xmit_data=9), "ok", None, id="busy"),
        pytest.param(snapshot(), "unknown", None, id="no-counters"),
    ],
)
def test_judgement(made: Snapshot, status: str, cause: str | None) -> None:
    findings = check(made, PROBES)
    assert status in statuses(findings)
    assert [finding.cause for finding in graver(findings)] == ([cause] if cause else [])


def test_wrap_and_reset() -> None:
    assert delta(2**32 - 5, 10) == 15
    assert delta(100, 7) == 0
    assert delta(5, 9) == 4


def test_rate_without_packets_or_uptime() -> None:
    assert loss({"packet_seq_err": 50}, None, True).matters
    assert not loss({}, None, True).matters
