from __future__ import annotations

from tests.probes.judged import judged as plain_judged
from tests.probes.machines import Machine, graver, judged, statuses

LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def machine(nodes: int = 1, library: bool = True, provider: bool = True, mode: int = 0o666) -> Machine:
    one = Machine().card("mlx5_0", "0000:10:00.0")
    one.file(f"{LIBRARIES}/libc.so.6", "x")
    if library:
        one.file(f"{LIBRARIES}/libibverbs.so.1", "x")
    if provider:
        one.file(f"{LIBRARIES}/libibverbs/libmlx5-rdmav34.so", "x")
    one.tree.add_folder("/dev/infiniband")
    for number in range(nodes):
        one.file(f"/dev/infiniband/uverbs{number}", "").stat(f"/dev/infiniband/uverbs{number}", mode=mode)
    return one


def test_all_there() -> None:
    assert statuses(judged("verbs-access", machine())) == ["ok"]


def test_container_without_devices() -> None:
    (finding,) = graver(judged("verbs-access", machine(nodes=0)))
    assert (finding.status.value, finding.cause) == (
        "fail",
        "rdma-unavailable",
    ) and "mlx5_0 (uverbs0)" in finding.summary


def test_only_root() -> None:
    (finding,) = graver(judged("verbs-access", machine(mode=0o600)))
    assert finding.status.value == "warn" and "mode 600" in finding.summary


def test_no_library_or_no_provider() -> None:
    assert "libibverbs.so.1" in graver(judged("verbs-access", machine(library=False)))[0].summary
    assert "libmlx5" in graver(judged("verbs-access", machine(provider=False)))[0].summary


def test_what_was_not_recorded_is_unknown() -> None:
    assert statuses(judged("verbs-access", Machine().card("mlx5_0", "0000:10:00.0"))) == ["unknown", "unknown"]


def test_without_devices() -> None:
    assert statuses(judged("verbs-access", Machine())) == ["skip"]


def test_devices_that_were_not_read_are_not_none() -> None:
    facts = {"folder": True, "nodes": {}, "library": None, "providers": [], "searched": True}
    (finding,) = plain_judged("verbs-access", {"a": facts})
    assert finding.status.value == "unknown"


def test_a_recorded_container_without_devices() -> None:
    """`collect --record` looked for /dev/infiniband and found none: that is no gap in the recording."""
    node = machine(nodes=0)
    node.tree.folders.pop("/dev/infiniband", None)
    node.meta["stat"]["/dev/infiniband"] = 2
    (finding,) = graver(judged("verbs-access", node))
    assert finding.status.value == "fail" and "does not exist" in finding.summary


def test_devices_that_no_program_can_open() -> None:
    node = machine()
    node.card("mlx5_1", "0000:11:00.0")
    del node.tree.files["/sys/class/infiniband_verbs/uverbs1/ibdev"]
    (finding,) = graver(judged("verbs-access", node))
    assert (finding.cause, finding.observed) == ("rdma-unavailable", ["mlx5_1"]) and "ib_uverbs" in (
        finding.remedy or ""
    )
