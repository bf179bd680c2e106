"""The fan-out in a tree: two gateways between us and the nodes, each a host with sshd and ClusterShell."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from ncdiag.drill.hosts import lab, usable
from ncdiag.drill.sshd import Ssh

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(
        shutil.which("sshd", path="/usr/sbin:/usr/bin") is None, reason="openssh-server is not installed"
    ),
    pytest.mark.skipif(importlib.util.find_spec("ClusterShell") is None, reason="ClusterShell is not installed"),
]


def test_nodes_behind_gateways_answer_and_a_lost_one_is_named() -> None:
    nodes = ("gpu01", "gpu02", "gpu03", "gpu04")
    with lab("head", "gate1", "gate2", *nodes) as made:
        ssh = Ssh(made)
        for name in ("gate1", "gate2", *nodes[:3]):
            ssh.serve(made[name])
        topology = made.folder / "topology.conf"
        topology.write_text("[routes]\nhead: gate[1-2]\ngate[1-2]: gpu[01-04]\n")
        argv = [sys.executable, "-m", "ncdiag", "preflight", "--nodes", "ssh:gpu[01-04]", "--ssh-config", str(ssh.config), "--only", "platform",
                "--timeout", "30", "--format", "json"]  # fmt: skip
        environment = {
            "PYTHONPATH": str(ROOT),
            "NCDIAG_TOPOLOGY": str(topology),
            "CLUSTERSHELL_GW_PYTHON_EXECUTABLE": sys.executable,
        }
        done = made["head"].run(*argv, env=environment, timeout_s=100)
        assert done.returncode == 3, done.stderr
        result = json.loads(done.stdout)
        callers = set(re.findall(r"Accepted publickey for root from (\S+)", (made.folder / "gpu01.log").read_text()))
        gates = {made["gate1"].address, made["gate2"].address}
        broken = made["head"].run(*argv, env={**environment, "NCDIAG_TOPOLOGY": "/nowhere"}, timeout_s=60)
    lost = [finding["where"]["node"] for finding in result["findings"] if finding["probe"] == "node"]
    assert lost == ["gpu04"], result["findings"]
    assert {finding["where"]["node"] for finding in result["findings"] if finding["status"] == "ok"} == set(nodes[:3])
    assert callers and callers <= gates, "the nodes are reached from the gateways alone"
    assert broken.returncode == 2 and "NCDIAG_TOPOLOGY=/nowhere" in broken.stderr
