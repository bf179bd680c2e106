"""NCCL's variables: names, values, contradictions."""

from __future__ import annotations

import pytest

from ncdiag.nccl.contradictions import Machine, find
from ncdiag.nccl.environment import effective, name_problem, nearest, parse_conf, table, value_problem


def test_the_table_is_whole_and_sound() -> None:
    assert len(table()) > 280
    for name, variable in table().items():
        assert name == name.upper() and variable.kind in ("int", "word", "anycase", "list", "level", "text", "any")
        assert bool(variable.words) == (variable.kind in ("word", "anycase", "list", "level"))
        assert (
            name_problem(name) is None or variable.until or name in ("NCCL_MAX_NRINGS", "NCCL_MIN_NRINGS", "NCCL_MNNVL")
        )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_SOCKET_IFACE", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKETIFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_INTERFACE", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKT_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DEBUG_SUBSYSTEM", "NCCL_DEBUG_SUBSYS"),
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
        ("NCCL_DISABLE_P2P", "NCCL_P2P_DISABLE"),
        ("NCCL_IB_HCAS", "NCCL_IB_HCA"),
        ("NCCL_IB_GID", "NCCL_IB_GID_INDEX"),
        ("NCCL_IB_TIME_OUT", "NCCL_IB_TIMEOUT"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("NCL_DEBUG", "NCCL_DEBUG"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NCCL_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"),
        ("NCCL_ALGORITHM", "NCCL_ALGO"),
    ],
)
def test_misspelt_names_lead_to_the_right_one(name: str, near: str) -> None:
    problem = name_problem(name)
    assert problem is not None and (problem.kind, problem.expected) == ("unknown-name", near)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NCCL_IB_CUDA_SUPPORT", "gone"),
        ("NCCL_TIMEOUT", "gone"),
        ("NCCL_BLOCKING_WAIT", "torch-name"),
        ("NCCL_MAX_NRINGS", "old-name"),
        ("NCCL_ZEBRA_COLOUR", "noted"),
        ("NCCL_VERSION", None),
        ("NCCL_SHARP_DISABLE", None),
        ("NCCL_FASTRAK_CTRL_DEV", None),
        ("NCCL_SOCKET_IFNAME", None),
    ],
)
def test_other_names(name: str, kind: str | None) -> None:
    problem = name_problem(name)
    assert (problem.kind if problem else None) == kind


@pytest.mark.parametrize(
    ("name", "version", "kind"),
    [
        ("NCCL_RAS_ENABLE", (2, 21, 5), "too-new"),
        ("NCCL_RAS_ENABLE", (2, 27, 3), None),
        ("NCCL_WORK_FIFO_DEPTH", (2, 27, 3), "gone"),
        ("NCCL_WORK_FIFO_DEPTH", (2, 21, 5), None),
        ("NCCL_DEBUG", (2, 18, 1), None),
    ],
)
def test_names_of_other_releases(name: str, version: tuple[int, int, int], kind: str | None) -> None:
    problem = name_problem(name, version)
    assert (problem.kind if problem else None) == kind


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("NCCL_IB_TIMEOUT", "22", None),
        ("NCCL_IB_TIMEOUT", "22abc", "reads 22"),
        ("NCCL_IB_TIMEOUT", "32", "out of range"),
        ("NCCL_IB_TIMEOUT", " 22 ", None),
        ("NCCL_IB_DISABLE", "true", "reads it as 0"),
        ("NCCL_IB_DISABLE", "1", None),
        ("NCCL_IB_DISABLE", "", None),
        ("NCCL_IB_TC", "010", "octal: 8"),
        ("NCCL_IB_TC", "0x6a", None),
        ("NCCL_IB_TC", "0", None),
        ("NCCL_IB_GID_INDEX", "-1", None),
        ("NCCL_IB_GID_INDEX", "-2", "out of range"),
        ("NCCL_BUFFSIZE", "9" * 25, "too large"),
        ("NCCL_BUFFSIZE", "4M", "reads 4"),
        ("NCCL_DEBUG", "info", None),
        ("NCCL_DEBUG", "DEBUG", "none of"),
        ("NCCL_P2P_LEVEL", "NVL", None),
        ("NCCL_P2P_LEVEL", "nvl", "exactly"),
        ("NCCL_P2P_LEVEL", "3", None),
        ("NCCL_SOCKET_FAMILY", "IPv4", "exactly"),
        ("NCCL_ALGO", "^ring", None),
        ("NCCL_ALGO", "allreduce:tree,ring;broadcast:ring", None),
        ("NCCL_ALGO", "Circle", "Circle"),
        ("NCCL_DEBUG_SUBSYS", "INIT,NETWORK", "NETWORK"),
        ("NCCL_DEBUG_SUBSYS", "^ALL", None),
        ("NCCL_TOPO_FILE", "/any/thing", None),
        ("NCCL_NOT_THERE", "x", None),
    ],
)
def test_values(name: str, value: str, word: str | None) -> None:
    problem = value_problem(name, value)
    assert (problem is None) == (word is None)
    assert problem is None or (word or "") in problem.summary


def test_a_word_that_means_the_contrary_is_not_decided_for_anybody() -> None:
    """`true` is read as 0: what NCCL does now may be right, and so may what was meant."""
    for value, remedy in (("true", "unset NCCL_IB_DISABLE if"), ("false", "export NCCL_IB_DISABLE=0")):
        problem = value_problem("NCCL_IB_DISABLE", value)
        assert problem is not None and problem.remedy.startswith(remedy)


MACHINE = Machine(["lo", "eth0", "eth1"], ["mlx5_0", "mlx5_1", "mlx5_10"], True, True)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"NCCL_SOCKET_IFNAME": "eth0"}, []),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, []),
        ({"NCCL_SOCKET_IFNAME": "=^eth0"}, ["NCCL_SOCKET_IFNAME"]),
        ({"NCCL_SOCKET_IFNAME": "eth0,^eth1"}, ["NCCL_SOCKET_IFNAME"]),
        ({"NCCL_SOCKET_IFNAME": "eth0, eth1"}, ["NCCL_SOCKET_IFNAME"]),
        ({"NCCL_SOCKET_IFNAME": "e"}, ["NCCL_SOCKET_IFNAME"]),
        ({"NCCL_SOCKET_IFNAME": "eth0,ib0"}, ["NCCL_SOCKET_IFNAME"]),
        ({"NCCL_IB_HCA": "mlx5_1"}, ["NCCL_IB_HCA"]),
        ({"NCCL_IB_HCA": "=mlx5_1:1"}, []),
        ({"NCCL_IB_HCA": "mlx5"}, []),
        ({"NCCL_IB_HCA": "mlx4"}, ["NCCL_IB_HCA"]),
        ({"NCCL_IB_DISABLE": "1"}, ["NCCL_IB_DISABLE"]),
        ({"NCCL_IB_DISABLE": "true"}, []),
        ({"NCCL_IB_DISABLE": "1", "NCCL_NET": "IB"}, ["NCCL_IB_DISABLE"]),
        ({"NCCL_NET": "Socket"}, ["NCCL_NET"]),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, ["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"]),
        ({"NCCL_DEBUG": "trace"}, ["NCCL_DEBUG"]),
        ({"NCCL_DEBUG_FILE": "/var/log/nccl.log"}, ["NCCL_DEBUG_FILE"]),
        ({"NCCL_DEBUG_FILE": "/var/log/nccl.%p"}, ["NCCL_DEBUG_FILE"]),
        ({"NCCL_DEBUG_FILE": "/var/log/nccl.%h.%p"}, []),
        ({"NCCL_DEBUG_FILE": "/dev/stderr"}, []),
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "4"}, ["NCCL_MIN_NCHANNELS"]),
        ({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, ["NCCL_NSOCKS_PERTHREAD"]),
        ({"NCCL_IB_PKEY": "0x8001"}, ["NCCL_IB_PKEY"]),
        ({"NCCL_COMM_ID": "192.0.2.1:4000", "NCCL_SOCKET_IFNAME": "eth0"}, ["NCCL_COMM_ID"]),
    ],
)
def test_contradictions(values: dict[str, str], names: list[str]) -> None:
    found = find(values, MACHINE)
    assert [trouble.name for trouble in found] == names
    assert all(trouble.remedy and trouble.expected for trouble in found)


def test_nothing_is_said_against_a_machine_that_was_not_read() -> None:
    assert (
        find(
            {"NCCL_IB_HCA": "mlx4_0", "NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_DISABLE": "1"},
            Machine(None, None, False, False),
        )
        == []
    )


def test_the_first_place_that_sets_a_name_counts() -> None:
    user = {"path": "/home/u/.nccl.conf", "lines": parse_conf("NCCL_A=user\nNCCL_A=again\nNCCL_B=user\n")}
    system = {"path": "/etc/nccl.conf", "lines": parse_conf("#NCCL_D=1\nNCCL_A=system\nNCCL_C=system\r\nnothing\n")}
    found = effective({"NCCL_B": "env"}, [user, system])
    assert {name: setting.value for name, setting in found.items()} == {
        "NCCL_A": "user",
        "NCCL_B": "env",
        "NCCL_C": "system",
    }
    assert found["NCCL_C"].origin == "/etc/nccl.conf line 3"


def test_nearest_without_a_prefix() -> None:
    assert nearest("Rings", ["Ring", "Tree"]) == "Ring"
    assert nearest("xyz", ["Ring", "Tree"]) is None
