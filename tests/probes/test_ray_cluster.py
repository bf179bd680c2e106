"""Ray's view of the nodes against what is there and what is planned."""

from __future__ import annotations

from typing import Any

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.host import Recorded
from ncdiag.model import Finding, NodeFacts, Plan, Snapshot
from ncdiag.probes.ray_cluster import collect
from ncdiag.tree import MemoryTree

PROBES = registry.load()
LINE = (
    "/opt/ray/raylet/raylet\0--raylet_socket_name=/tmp/ray/s\0--static_resource_list=node:192.0.2.1,1.0,CPU,32,GPU,{gpus},object_store_memory,1000\0"
    "--gcs-address=192.0.2.1:6379\0--temp_dir=/tmp/ray\0"
)


def judged(plan: Plan, **nodes: dict[str, Any]) -> list[Finding]:
    made = {}
    for name, told in nodes.items():
        facts: dict[str, Any] = {}
        if "there" in told:
            facts["gpus"] = {
                "gpus": [{}] * told["there"],
                "driver": None,
                "cuda": None,
                "open_modules": None,
                "hidden": [],
                "why": None,
            }
        if "head" in told:
            facts["ray-cluster"] = [
                {"pid": 1, "resources": {"GPU": float(told["gpus"])}, "gcs_address": told["head"], "temp_dir": None}
            ]
        if "shm" in told:
            facts["shm"] = {"total_bytes": told["shm"], "free_bytes": told["shm"]}
        resources = {"GPU": float(told["gpus"]), "object_store_memory": told.get("store", 0)}
        meta = (
            {}
            if "head" in told
            else {"ray": {"address": "192.0.2.1", "alive": told.get("alive", True), "resources": resources}}
        )
        made[name] = NodeFacts(name, facts, meta=meta)
    return check(Snapshot(made, plan), PROBES.chosen(["ray-cluster"]))


@pytest.mark.parametrize(
    "nodes, plan, wanted",
    [
        ({"a": {"gpus": 8, "there": 8}, "b": {"gpus": 8, "there": 8}}, Plan(tp=8, pp=2), [("ok", None, None)]),
        ({"a": {"gpus": 8, "there": 8}, "b": {"gpus": 4, "there": 8}}, Plan(), [("warn", "b", "ray-resources-infeasible")]),
        ({"a": {"gpus": 8, "there": 7}}, Plan(), [("fail", "a", "ray-resources-infeasible")]),
        ({"a": {"gpus": 8}, "b": {"gpus": 8, "alive": False}}, Plan(), [("fail", "b", "ray-node-lost")]),
        ({"a": {"gpus": 8}, "b": {"gpus": 8}}, Plan(tp=8, pp=3), [("fail", None, "ray-resources-infeasible")]),
        ({"a": {"gpus": 0, "store": 1 << 34, "shm": 1 << 26}}, Plan(), [("warn", "a", "shm-too-small")]),
        ({"a": {"gpus": 8, "head": "192.0.2.1:6379"}, "b": {"gpus": 8, "head": "192.0.2.1:6379"}}, Plan(), [("ok", None, None)]),
        ({"a": {"gpus": 8, "head": "x:1"}, "b": {"gpus": 8, "head": "x:1"}, "c": {"gpus": 8, "head": "y:1"}}, Plan(),
         [("fail", "c", "ray-resources-infeasible")]),
    ],
    ids=["fits", "fewer-declared", "more-declared", "dead", "infeasible", "store", "raylets", "two-clusters"],
)  # fmt: skip
def test_statuses(
    nodes: dict[str, dict[str, Any]], plan: Plan, wanted: list[tuple[str, str | None, str | None]]
) -> None:
    assert [
        (finding.status.value, finding.where.get("node"), finding.cause) for finding in judged(plan, **nodes)
    ] == wanted


def test_infeasible_plan_names_who_did_not_join() -> None:
    found = check(
        Snapshot(
            {"a": NodeFacts("a", meta={"ray": {"alive": True, "resources": {"GPU": 8.0}}}), "b": NodeFacts("b")},
            Plan(tp=16),
        ),
        PROBES.chosen(["ray-cluster"]),
    )
    assert "b did not join" in found[0].summary


def test_command_line_of_a_raylet() -> None:
    tree = MemoryTree()
    tree.add_file("/proc/77/cmdline", LINE.format(gpus=8).encode())
    tree.add_file("/proc/78/cmdline", b"python\0-m\0x\0--static_resource_list=GPU,1\0")
    (raylet,) = collect(Recorded(tree, "a"))
    assert raylet == {
        "pid": 77,
        "resources": {"CPU": 32.0, "GPU": 8.0, "object_store_memory": 1000.0},
        "gcs_address": "192.0.2.1:6379",
        "temp_dir": "/tmp/ray",
        "node_ip": None,
        "ports": {},
        "worker_ports": None,
    }


SOCKETS = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:97E7 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 501 1
   1: 00000000000000000000000000000000:1F7C 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 502 1
   2: 00000000000000000000000000000000:18EB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 999 1
   3: 0000000000000000FFFF0000010200C0:97E7 0000000000000000FFFF0000020200C0:A000 01 00000000:00000000 00:00000000 00000000     0        0 503 1
"""


@pytest.mark.parametrize("options, ports, workers", [
    ("--node_manager_port=0\0--object_manager_port=0\0--min_worker_port=10002\0--max_worker_port=19999\0",
     {"Ray's first manager port": 8060, "Ray's second manager port": 38887}, [10002, 19999]),
    ("--node_manager_port=8060\0--object_manager_port=0\0", {"Ray's node manager": 8060, "Ray's first manager port": 38887}, None),
    ("--node_manager_port=8060\0--object_manager_port=8076\0--min_worker_port=0\0--max_worker_port=0\0",
     {"Ray's node manager": 8060, "Ray's object manager": 8076}, None),
])  # fmt: skip
def test_ports_of_a_raylet(options: str, ports: dict[str, int], workers: list[int] | None) -> None:
    """Fixed on the command line, or its own listening sockets: not another process's, and not a connection."""
    tree = MemoryTree()
    tree.add_file("/proc/77/cmdline", (LINE.format(gpus=8) + "--node_ip_address=192.0.2.1\0" + options).encode())
    tree.add_file("/proc/77/net/tcp6", SOCKETS.encode())
    for number, inode in enumerate((501, 502, 503)):
        tree.add_link(f"/proc/77/fd/{number}", f"socket:[{inode}]")
    (raylet,) = collect(Recorded(tree, "a"))
    assert (raylet["node_ip"], raylet["ports"], raylet["worker_ports"]) == ("192.0.2.1", ports, workers)
