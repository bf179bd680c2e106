from __future__ import annotations

from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.model import Plan
from ncdiag.nccl.environment import parse_conf
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, interfaces, judged


def node(environ: dict[str, str] | None, **more: Any) -> dict[str, Any]:
    return {
        "nccl-environment": {
            "environ": environ,
            "reason": None if environ is not None else "Permission denied",
            "absent": [],
        },
        **more,
    }


def found(nodes: dict[str, dict[str, Any]], plan: Plan | None = None) -> list[tuple[str, str | None, str | None]]:
    return [
        (finding.status.value, finding.where.get("setting"), finding.cause)
        for finding in judged("nccl-environment", nodes, plan)
    ]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, [("ok", None, None)]),
        ({"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "eth0"}, [("ok", None, None)]),
        ({"NCCL_SOCKET_IFACE": "eth0"}, [("warn", "NCCL_SOCKET_IFACE", "env-unknown-or-invalid")]),
        ({"NCCL_ZEBRA": "1"}, [("skip", "NCCL_ZEBRA", None), ("ok", None, None)]),
        ({"NCCL_IB_DISABLE": "yes"}, [("warn", "NCCL_IB_DISABLE", "env-unknown-or-invalid")]),
        (None, [("unknown", None, None)]),
    ],
)
def test_one_node(environ: dict[str, str] | None, expected: list[tuple[str, str | None, str | None]]) -> None:
    assert found({"a": node(environ)}) == expected


def test_too_new_for_the_library_that_was_found() -> None:
    library = {"libraries": [{"path": "/x/libnccl.so.2", "by": "system", "version": "2.20.5+cuda12.4"}]}
    assert found({"a": node({"NCCL_RAS_ENABLE": "1"}, **{"nccl-library": library})})[0][:2] == (
        "warn",
        "NCCL_RAS_ENABLE",
    )
    assert found({"a": node({"NCCL_RAS_ENABLE": "1"})}, Plan(nccl_version="2.27.3")) == [("ok", None, None)]


def test_against_the_machine() -> None:
    rdma = {"devices": [{"name": "mlx5_0", "ports": [{"state": "ACTIVE"}]}], "has_class": True, "cut": False}
    machine = {"interfaces": interfaces("eth0=192.0.2.1"), "rdma-devices": rdma}
    assert found({"a": node({"NCCL_IB_DISABLE": "1"}, **machine)}) == [("warn", "NCCL_IB_DISABLE", "net-fallback-slow")]
    assert found({"a": node({"NCCL_IB_DISABLE": "1", "NCCL_NET": "IB"}, **machine)}) == [
        ("fail", "NCCL_IB_DISABLE", "net-plugin-forced-unavailable")
    ]
    assert found({"a": node({"NCCL_IB_HCA": "mlx4"}, **machine)}) == [("warn", "NCCL_IB_HCA", "rdma-unavailable")]


def test_a_parameter_file_counts_like_the_environment() -> None:
    files = {
        "files": [
            {
                "path": "/etc/nccl.conf",
                "by": "always",
                "state": "read",
                "reason": None,
                "lines": parse_conf("NCCL_P2P_DISABLE=1\n"),
            }
        ]
    }
    (finding,) = judged("nccl-environment", {"a": node({}, **{"nccl-conf-files": files})})
    assert finding.source == "/etc/nccl.conf line 1" and finding.where["setting"] == "NCCL_P2P_DISABLE"


def test_what_must_be_equal_between_nodes() -> None:
    nodes = {"a": node({"NCCL_ALGO": "Ring"}), "b": node({"NCCL_ALGO": "Ring"}), "c": node({})}
    differing = [finding for finding in judged("nccl-environment", nodes) if finding.status.value == "fail"]
    assert [finding.where for finding in differing] == [{"node": "c", "setting": "NCCL_ALGO"}]
    assert differing[0].observed == {"Ring": ["a", "b"], "not set": ["c"]}
    assert found({"a": node({"NCCL_IB_TC": "106"}), "b": node({"NCCL_IB_TC": "0"})})[-1][:2] == ("warn", "NCCL_IB_TC")
    assert {
        status
        for status, *_ in found({"a": node({"NCCL_SOCKET_IFNAME": "eth0"}), "b": node({"NCCL_SOCKET_IFNAME": "eth1"})})
    } == {"ok"}
    assert found({"a": node({"NCCL_HOSTID": "x"}), "b": node({"NCCL_HOSTID": "x"})})[-1][:2] == ("fail", "NCCL_HOSTID")


def test_a_node_that_was_not_read_is_not_a_difference() -> None:
    assert [entry[0] for entry in found({"a": node({"NCCL_ALGO": "Ring"}), "b": node(None)})] == ["ok", "unknown"]


def test_live_and_absent_paths(tmp_path: Any) -> None:
    host = Host(
        environment={
            "NCCL_TOPO_FILE": str(tmp_path / "none.xml"),
            "NCCL_DEBUG_FILE": str(tmp_path / "nccl.%h.%p"),
            "NCLL_DEBUG": "INFO",
        }
    )
    facts = collected("nccl-environment", host)
    assert (
        facts["absent"] == [str(tmp_path / "none.xml")]
        and "NCLL_DEBUG" in facts["environ"]
        and "PATH" not in facts["environ"]
    )
    assert {
        finding.where.get("setting") for finding in judged("nccl-environment", {"a": {"nccl-environment": facts}})
    } >= {"NCCL_TOPO_FILE", "NCLL_DEBUG"}


def test_an_environment_that_was_not_recorded_is_unknown() -> None:
    facts = collected("nccl-environment", Recorded(MemoryTree()))
    assert facts["environ"] is None
    assert [finding.status.value for finding in judged("nccl-environment", {"a": {"nccl-environment": facts}})] == [
        "unknown"
    ]
