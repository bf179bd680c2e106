from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.nccl.reach import useless_words
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, interfaces, judged
from tests.probes.namespaces import namespace, needs_root

WRONG = "node-ip-wrong-interface"


def node(
    *entries: str,
    environ: dict[str, str] | None = None,
    raylet: str | None = None,
    lookups: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "interfaces": interfaces("lo=127.0.0.1/8", *(entries or ("eth0=192.0.2.1",))),
        "framework-environment": {"environ": environ or {}, "reason": None, "absent": []},
        "nccl-environment": {"environ": {}, "reason": None, "absent": []},
        "nccl-conf-files": {"files": []},
        "default-route": {"source": "rtnetlink", "routes": [], "sources": None},
        "node-address": {
            "raylets": [{"pid": 7, "node_ip": raylet, "gcs_address": None}] if raylet else [],
            "lookups": lookups or {},
        },
    }


def found(*nodes: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
    return [
        (finding.status.value, finding.where.get("setting"), finding.cause)
        for finding in judged("node-address", {f"n{number}": facts for number, facts in enumerate(nodes)})
    ]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (node(), ("skip", None, None)),
        (node(environ={"VLLM_HOST_IP": "192.0.2.1"}), ("ok", None, None)),
        (node(environ={"VLLM_HOST_IP": "192.0.2.9"}), ("fail", "VLLM_HOST_IP", WRONG)),
        (node(environ={"VLLM_HOST_IP": "127.0.0.1"}), ("warn", "VLLM_HOST_IP", WRONG)),
        (node(environ={"VLLM_HOST_IP": "0.0.0.0"}), ("fail", "VLLM_HOST_IP", WRONG)),
        (
            node(
                environ={"VLLM_HOST_IP": "gpu1"},
                lookups={"gpu1": {"addresses": None, "error": "x", "failed": "unknown-name"}},
            ),
            ("warn", "VLLM_HOST_IP", WRONG),
        ),
        (node(environ={"MASTER_ADDR": "127.0.0.1"}), ("ok", None, None)),
        (node(environ={"MASTER_ADDR": "203.0.113.5"}), ("fail", "MASTER_ADDR", WRONG)),
        (
            node(
                environ={"MASTER_ADDR": "head"},
                lookups={"head": {"addresses": None, "error": "x", "failed": "no-answer"}},
            ),
            ("fail", "MASTER_ADDR", "dns-unresponsive"),
        ),
        (node(raylet="192.0.2.1"), ("ok", None, None)),
        (node(raylet="198.51.100.1"), ("fail", "raylet", WRONG)),
        (
            node("eth0=192.0.2.1", "eth1=198.51.100.1", raylet="192.0.2.1", environ={"VLLM_HOST_IP": "198.51.100.1"}),
            ("warn", "VLLM_HOST_IP", WRONG),
        ),
    ],
)
def test_one_node(facts: dict[str, Any], expected: tuple[str, str | None, str | None]) -> None:
    assert found(facts) == [expected]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            (
                node("eth0=192.0.2.1", environ={"VLLM_HOST_IP": "192.0.2.1"}),
                node("eth0=192.0.2.2", environ={"VLLM_HOST_IP": "192.0.2.1"}),
            ),
            ("fail", "VLLM_HOST_IP", WRONG),
        ),
        (
            (
                node("eth0=192.0.2.1", environ={"MASTER_ADDR": "192.0.2.1"}),
                node("eth0=192.0.2.2", environ={"MASTER_ADDR": "192.0.2.2"}),
            ),
            ("fail", "MASTER_ADDR", WRONG),
        ),
        (
            (
                node(
                    "eth0=192.0.2.1",
                    environ={"MASTER_ADDR": "localhost"},
                    lookups={"localhost": {"addresses": ["127.0.0.1"], "error": None, "failed": ""}},
                ),
                node("eth0=192.0.2.2"),
            ),
            ("fail", "MASTER_ADDR", WRONG),
        ),
        (
            (
                node("eth0=192.0.2.1", "eth1=198.51.100.1", environ={"VLLM_HOST_IP": "198.51.100.1"}),
                node("eth0=192.0.2.2"),
            ),
            ("warn", "VLLM_HOST_IP", WRONG),
        ),
        (
            (
                node("eth0=192.0.2.1", "eth1=198.51.100.1", environ={"VLLM_HOST_IP": "198.51.100.1"}),
                node("eth0=192.0.2.2", "eth1=198.51.100.2"),
            ),
            ("ok", None, None),
        ),
        ((node("eth0=192.0.2.1", raylet="127.0.0.1"), node("eth0=192.0.2.2")), ("fail", "raylet", WRONG)),
    ],
)
def test_between_nodes(nodes: tuple[dict[str, Any], ...], expected: tuple[str, str | None, str | None]) -> None:
    assert expected in found(*nodes)


def test_a_raylet_is_read_from_its_command_line() -> None:
    tree = MemoryTree()
    tree.add_file(
        "/proc/77/cmdline",
        b"/x/ray/core/src/ray/raylet/raylet\0--raylet_socket_name=/tmp/a\0--node_ip_address=192.0.2.7\0--gcs-address=192.0.2.1:6379\0"
        b"--agent_command=python agent.py --node-ip-address=192.0.2.8 --gcs-address=192.0.2.9:1\0",
    )
    tree.add_file("/proc/78/cmdline", b"less\0raylet.out\0")
    assert collected("node-address", Recorded(tree))["raylets"] == [
        {"pid": 77, "node_ip": "192.0.2.7", "gcs_address": "192.0.2.1:6379"}
    ]


@pytest.mark.lab
def test_a_raylet_of_a_container_is_not_ours(tmp_path: Path) -> None:
    needs_root()
    raylet = tmp_path / "raylet"
    raylet.symlink_to("/bin/sh")
    with (
        namespace("ncdiag-ray", []) as name,
        subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                name,
                str(raylet),
                "-c",
                "echo up; read line",
                "x",
                "--node_ip_address=192.0.2.200",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other,
        subprocess.Popen(
            [str(raylet), "-c", "echo up; read line", "x", "--node_ip_address=192.0.2.201"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as ours,
    ):
        for process in (other, ours):
            assert process.stdout is not None and process.stdout.readline()
        seen = [entry["node_ip"] for entry in collected("node-address", Host())["raylets"]]
        other.communicate(b"end\n")
        ours.communicate(b"end\n")
    assert "192.0.2.201" in seen and "192.0.2.200" not in seen


def test_live() -> None:
    begun = time.thread_time()
    facts = collected("node-address", Host(environment={"MASTER_ADDR": "localhost", "VLLM_HOST_IP": ""}))
    assert time.thread_time() - begun < 0.2
    assert "127.0.0.1" in facts["lookups"]["localhost"]["addresses"]


@pytest.mark.parametrize("address, words", [
    ("127.0.0.1", "a loopback address"), ("0.0.0.0", "an unspecified address"), ("::", "an unspecified address"), ("fe80::1%eth0", "a link-local address"),
])  # fmt: skip
def test_addresses_of_no_use_in_words(address: str, words: str) -> None:
    assert useless_words(address) == words
