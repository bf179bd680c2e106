from __future__ import annotations

import pytest

from ncdiag.nccl import xid
from tests.probes.machines import Machine, eight_rails, judged, statuses
from tests.probes.smi import addresses, with_gpus

QUIET = "[    0.000000] Linux version 6.8.0\n"


def machine(log: str = QUIET, rc: int = 0) -> Machine:
    return with_gpus(eight_rails(), addresses()).command("dmesg", log, rc)


def test_quiet() -> None:
    assert statuses(judged("gpu-xid", machine())) == ["ok"]
    assert statuses(judged("gpu-xid", Machine().command("dmesg", QUIET))) == ["skip"]


@pytest.mark.parametrize(
    ("line", "status", "cause"),
    [
        (
            "NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "warn",
            "gpu-hardware-fault",
        ),
        ("NVRM: Xid (PCI:0000:13:00): 63, Row Remapper: New row marked", "warn", "gpu-ecc-row-remap"),
        ("NVRM: Xid (PCI:0000:13:00): 31, pid=1, name=python, Ch 8", "skip", None),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32", "warn", "nvswitch-error"),
    ],
)
def test_kernel_log(line: str, status: str, cause: str | None) -> None:
    findings = judged("gpu-xid", machine(f"{QUIET}[  9.1] {line}\n" * 2))
    found = next(finding for finding in findings if finding.source == "dmesg")
    assert (found.status.value, found.cause) == (status, cause) and "2 times" in found.summary


def test_unreadable_log_is_unknown() -> None:
    node = machine("dmesg: read kernel buffer failed: Operation not permitted", 1)
    assert statuses(judged("gpu-xid", node)) == ["unknown"]


def test_xid_lines() -> None:
    event = xid.parse("[1] NVRM: Xid (PCI:0000:07:00): 48, pid=99, DBE")
    assert event is not None and (event.code, event.address, event.kind) == (48, "0000:07:00", "hardware")
    assert xid.parse("NVRM: loading NVIDIA UNIX") is None
