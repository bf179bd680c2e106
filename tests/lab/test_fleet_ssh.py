"""The fleet over real sshd on namespace hosts: each bad node is named with its reason, the others are complete."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill.hosts import Lab, lab, usable, wait_for
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
    assert "no SSH server spoke at the end of the way there" in lost["gpu03"]
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


def sleeping(mark: str) -> bool:
    """Whether somebody sleeps that long."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return any(line.endswith(f"sleep {mark}") for line in found)


def through(ssh: Ssh, made: Lab, command: str, extra: str = "") -> Ssh:
    """The same nodes through a ProxyCommand; its configuration goes before the lab's."""
    config = made.folder / f"proxy-{time.time_ns()}"
    config.write_text(f"Host gpu01\n  ProxyCommand {command}\n{extra}\n{ssh.config.read_text()}")
    other = copy.copy(ssh)
    other.config = config
    return other


def test_what_a_proxy_command_leaves_is_ended(hosts: tuple[Lab, Ssh]) -> None:
    made, ssh = hosts
    relay = f"sh -c 'ssh -F {ssh.config} -W %%h:%%p gpu02; sleep {{}}'".replace("%%", "%")
    result, took = preflight(made, through(ssh, made, relay.format(986001)), "gpu01", "--only", "platform")
    assert result["counts"]["ok"] == 1 and took < 15 and not sleeping("986001")
    result, took = preflight(
        made, through(ssh, made, "sh -c 'sleep 986002; true'"), "gpu01", "--only", "platform", "--timeout", "20"
    )
    (lost,) = [finding["summary"] for finding in result["findings"] if finding["probe"] == "node"]
    assert "no SSH server spoke at the end of the way there" in lost and took < 18 and not sleeping("986002")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_a_signal(hosts: tuple[Lab, Ssh], number: signal.Signals) -> None:
    made, ssh = hosts
    chosen = through(ssh, made, "sh -c 'sleep 986003; true'")
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    argv = ["-m", "ncdiag", "preflight", "--nodes", "ssh:gpu01", "--ssh-config", str(chosen.config)]
    process = subprocess.Popen(
        made["head"].argv([sys.executable, "-c", heed, *argv]), env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert wait_for(lambda: sleeping("986003"))
    process.send_signal(number)
    assert process.wait(10) == (130 if number is signal.SIGINT else -number)
    assert not sleeping("986003")


def test_a_master_of_the_users_own_configuration_stays(hosts: tuple[Lab, Ssh]) -> None:
    made, ssh = hosts
    master = f"  ControlMaster auto\n  ControlPath {made.folder}/cm-%h\n  ControlPersist 60\n"
    chosen = through(ssh, made, f"sh -c 'ssh -F {ssh.config} -W %h:%p gpu02; true'", master)
    ask = ["ssh", "-F", str(chosen.config), "gpu01", "-O"]
    try:
        for _ in range(2):
            result, _ = preflight(made, chosen, "gpu01", "--only", "platform")
            assert result["counts"]["ok"] == 1
            assert "Master running" in made["head"].run(*ask, "check").stderr
        assert made["head"].run("ssh", "-F", str(chosen.config), "gpu01", "echo through").stdout == "through\n", (
            "and works"
        )
    finally:
        made["head"].run(*ask, "exit")


def test_a_machine_that_was_named_twice_is_judged_once(hosts: tuple[Lab, Ssh]) -> None:
    made, ssh = hosts
    result, _ = preflight(made, ssh, f"gpu01,{made['gpu01'].address},gpu02", "--only", "address-unique")
    assert result["nodes"] == ["gpu01", "gpu02"] and result["counts"]["fail"] == 0


def test_endless_output_is_cut_off(hosts: tuple[Lab, Ssh]) -> None:
    made, ssh = hosts
    ssh.serve(made["gpu08"], extra="ForceCommand cat /dev/urandom")
    result, took = preflight(made, ssh, "gpu[01,08]", "--only", "platform", "--timeout", "40")
    (lost,) = [finding["summary"] for finding in result["findings"] if finding["probe"] == "node"]
    assert "gpu08 gave nothing: it printed more than 16 MiB" in lost and result["counts"]["ok"] == 1 and took < 35
