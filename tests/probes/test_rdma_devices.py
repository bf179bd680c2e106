from __future__ import annotations

from ncdiag.probes.rdma_devices import collect
from tests.probes.machines import Machine


def test_facts_of_a_card() -> None:
    machine = Machine()
    machine.card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2", rate="200 Gb/sec (4X HDR)", verbs=3)
    (device,) = collect(machine.host())["devices"]
    assert (device["busid"], device["verbs"], device["driver"], device["node_type"]) == (
        "0000:10:00.0",
        3,
        "mlx5_core",
        "CA",
    )
    (port,) = device["ports"]
    assert (port["state"], port["phys_state"], port["rate_gbits_s"], port["lanes"], port["speed"]) == (
        "ACTIVE",
        "LinkUp",
        200.0,
        4,
        "HDR",
    )
    assert port["netdevs"] == ["eth2"]


def test_rates_of_old_and_odd_kernels() -> None:
    for text, rate, speed in (
        ("2.5 Gb/sec (1X SDR)", 2.5, "SDR"),
        ("40 Gb/sec (4X)", 40.0, None),
        ("", None, None),
        ("fast", None, None),
    ):
        machine = Machine()
        machine.card("mlx5_0", "0000:10:00.0", rate=text)
        port = collect(machine.host())["devices"][0]["ports"][0]
        assert (port["rate_gbits_s"], port["speed"]) == (rate, speed)
