from __future__ import annotations

from tests.probes.machines import Machine, eight_rails, graver, judged, statuses


def test_eight_rails() -> None:
    (finding,) = judged("numa-affinity", eight_rails())
    assert "8 x PIX" in finding.summary


def test_only_card_on_the_other_socket() -> None:
    machine = Machine()
    for bus, numa in ((0x10, 0), (0x20, 1)):
        gpu, nic = machine.switch(bus, numa)
        machine.gpu(f"0000:{bus + 3:02x}:00.0", gpu, numa=numa)
        if numa:
            machine.card("mlx5_0", f"0000:{bus + 3:02x}:01.0", nic, numa=numa)
    (finding,) = graver(judged("numa-affinity", machine))
    assert (finding.cause, finding.where["device"]) == ("gdr-disabled", "0000:13:00.0")


def test_no_judgement_without_the_firmware() -> None:
    machine = Machine()
    machine.gpu("0000:05:00.0", numa=-1).card("mlx5_0", "0000:06:00.0", numa=-1)
    assert statuses(judged("numa-affinity", machine)) == ["skip"]


def test_balancing() -> None:
    machine = eight_rails().file("/proc/sys/kernel/numa_balancing", "1")
    for node in ("node0", "node1"):
        machine.tree.add_folder(f"/sys/devices/system/node/{node}")
    finding = graver(judged("numa-affinity", machine))[0]
    assert "numa_balancing" in finding.summary and finding.cause == "numa-balancing"


def test_nodes_that_differ() -> None:
    findings = graver(judged("numa-affinity", eight_rails("a"), eight_rails("b"), eight_rails("c", down=[5])))
    assert [(finding.where["node"], finding.cause) for finding in findings] == [("c", "hca-mismatch-between-nodes")]


def test_where_it_does_not_apply() -> None:
    assert statuses(judged("numa-affinity", Machine())) == ["skip"]
    lonely = Machine()
    lonely.gpu("0000:05:00.0")
    assert statuses(judged("numa-affinity", lonely)) == ["skip"]
