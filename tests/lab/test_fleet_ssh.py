"""The fleet over real sshd on namespace hosts: each bad node is named with its reason, the others are complete."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill.hosts import Lab, lab, usable
from ncdiag.drill.sshd import Ssh

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(
        shutil.which("sshd", path="/usr/sbin:/usr/bin") is None, reason="openssh-server is not installed"
    ),
]
LISTENER = "import socket, time\ns = socket.create_server(('{address}', 22))\nkeep = []\nwhile True:\n    keep.append(s.accept())\n"
OLD_PYTHON = '#!/bin/sh\n[ "$4" = x ] || { echo 3.6; exit 1; }\n'


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Lab, Ssh]]:
    with lab("head", "gpu01", "gpu02", "gpu03", "gpu04", "gpu05", "gpu06", "gpu07", "gpu08") as made:
        ssh = Ssh(made)
        ssh.serve(made["gpu01"])
        ssh.serve(
            made["gpu02"],
            extra='ForceCommand echo Welcome to {gpu02}; echo ncdiag-payload-begin 3; sh -c "$SSH_ORIGINAL_COMMAND"; echo bye',
        )
        made["gpu03"].start(sys.executable, "-c", LISTENER.format(address=made["gpu03"].address))
        ssh.serve(made["gpu04"], known=False)
        (made.folder / "old").write_text(OLD_PYTHON)
        (made.folder / "old").chmod(0o755)
        hide = " ".join(
            f"/usr/bin/{name}"
            for name in sorted(path.name for path in Path("/usr/bin").glob("python3*") if "config" not in path.name)
        )
        profiles = "$HOME/.bashrc $HOME/.zshenv /etc/bash.bashrc"  # they may lead to other interpreters
        made["gpu05"].mount(
            f"for p in {hide}; do mount --bind {made.folder}/old $p; done; "
            f"for p in {profiles}; do [ ! -e $p ] || mount --bind /dev/null $p; done"
        )
        ssh.serve(made["gpu05"])
        made["gpu06"].mount(
            "mount -t tmpfs -o size=64k tmpfs /tmp/ray; dd if=/dev/zero of=/tmp/ray/full bs=1k count=64 2>/dev/null || true"
        )
        ssh.serve(made["gpu06"])
        ssh.serve(made["gpu07"], extra="ForceCommand echo nothing but this")
        # gpu08 has no sshd: connection refused. gpu09 does not exist at all.
        made["head"].mount(f"echo '{made['head'].address[:-1]}77 gpu09' >> /etc/hosts")
        yield made, ssh


def preflight(made: Lab, ssh: Ssh, nodes: str, *extra: str) -> tuple[dict[str, Any], float]:
    started = time.monotonic()
    done = made["head"].run(
        sys.executable,
        "-m",
        "ncdiag",
        "preflight",
        "--nodes",
        f"ssh:{nodes}",
        "--ssh-config",
        str(ssh.config),
        "--format",
        "json",
        *extra,
        env={"PYTHONPATH": str(ROOT)},
        timeout_s=120,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout), time.monotonic() - started


def test_each_bad_node_is_named_and_the_others_complete(hosts: tuple[Lab, Ssh]) -> None:
    result, took = preflight(*hosts, "gpu[01-09]", "--timeout", "20")
    lost = {
        finding["where"]["node"]: finding["summary"] for finding in result["findings"] if finding["probe"] == "node"
    }
    assert set(lost) == {"gpu03", "gpu04", "gpu05", "gpu07", "gpu08", "gpu09"}
    assert "timed out" in lost["gpu03"] or "no answer within" in lost["gpu03"]
    assert "ost key" in lost["gpu04"]
    assert "no Python 3.8" in lost["gpu05"] and "3.6" in lost["gpu05"]
    assert "holds no facts" in lost["gpu07"]
    assert "refused" in lost["gpu08"]
    assert "gpu09" in lost["gpu09"]
    platform = [
        finding for finding in result["findings"] if finding["probe"] == "platform" and finding["status"] == "ok"
    ]
    assert {finding["where"]["node"] for finding in platform} == {"gpu01", "gpu02", "gpu06"}, (
        "a banner around the payload does no harm"
    )
    assert took < 40, "the bad nodes are waited for together, not one after the other"


def test_full_disk_is_named_with_its_node_and_stops_nothing(hosts: tuple[Lab, Ssh]) -> None:
    result, _ = preflight(*hosts, "gpu01,gpu06", "--only", "temp-space")
    full = [finding for finding in result["findings"] if finding["status"] == "fail"]
    assert {(finding["where"]["node"], finding["cause"]) for finding in full} == {("gpu06", "disk-full")}


def left() -> set[Path]:
    """What carries our name in the folders for temporary files; other labs at the same time do not count."""
    found = {path for folder in ("/tmp", "/var/tmp", "/dev/shm") for path in Path(folder).glob("*ncdiag*")}
    return {path for path in found if not path.name.startswith("ncdiag-lab-")}


def test_nothing_is_left_on_the_nodes(hosts: tuple[Lab, Ssh]) -> None:
    made, ssh = hosts
    before = left()
    preflight(made, ssh, "gpu01")
    assert left() <= before


def test_hostfile_and_user(hosts: tuple[Lab, Ssh]) -> None:
    made, ssh = hosts
    (made.folder / "hostfile").write_text("# two nodes\ngpu01 slots=8\n\ngpu02 slots=8  # second\n")
    result, _ = preflight(made, ssh, f"@{made.folder}/hostfile", "--only", "shm", "--ssh-user", "root")
    assert result["nodes"] == ["gpu01", "gpu02"]
