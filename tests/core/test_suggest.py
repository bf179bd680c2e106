from __future__ import annotations

import subprocess
import sys

import pytest

from ncdiag.suggest import did_you_mean, near

KNOWN = ["preflight", "hang-dump", "shm-too-small", "socket-ifname-wrong", "version-mismatch", "nccl-version-mismatch", "ib-link-or-hca-fault"]  # fmt: skip


@pytest.mark.parametrize(("name", "meant"), [
    ("preflght", ["preflight"]),
    ("hangdump", ["hang-dump"]),
    ("Hang_Dump", ["hang-dump"]),
    ("shm-to-small", ["shm-too-small"]),
    ("socket-ifname", ["socket-ifname-wrong"]),
    ("nccl-version-mismach", ["nccl-version-mismatch"]),
    ("ib-hca-fault", ["ib-link-or-hca-fault"]),
    ("zebra", []),
    ("", []),
])  # fmt: skip
def test_near(name: str, meant: list[str]) -> None:
    assert near(name, KNOWN) == meant


def test_words() -> None:
    assert did_you_mean("preflght", KNOWN) == "; did you mean preflight?"
    assert did_you_mean("zebra", KNOWN) == ""
    assert did_you_mean("versions-mismatch", KNOWN) == "; did you mean version-mismatch?"


@pytest.mark.parametrize(("arguments", "meant"), [
    (("hangdump", "1"), "hang-dump"),
    (("playbook", "sho", "x"), "show"),
    (("playbook", "run", "shm-small"), "shm-too-small"),
    (("playbook", "show", "socket_ifname_wrong"), "socket-ifname-wrong"),
    (("playbook", "lint", "shm-to-small"), "shm-too-small"),
    (("preflight", "--only", "rdma_port"), "rdma-port"),
    (("env", "--explain", "nccl-socket-ifname"), "NCCL_SOCKET_IFNAME"),
    (("plan", ".", "--gpus", "H10x8"), "H100"),
])  # fmt: skip
def test_on_the_command_line(arguments: tuple[str, ...], meant: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ncdiag", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 2 and f"did you mean {meant}" in done.stderr, done.stderr
