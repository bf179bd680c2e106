"""The GID index by version: small tables first, then the real ones of captured Soft-RoCE machines."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from ncdiag.host import Recorded
from ncdiag.nccl.gid import Gid, choose, recommend
from ncdiag.probes import roce_gid
from ncdiag.tree import open_tree

TREES = Path(__file__).parent.parent / "trees"
LINK, GLOBAL6, NONE = "fe80::ff:fe00:1", "2001:db8::1", "::"
A, B = "::ffff:192.0.2.1", "::ffff:198.51.100.1"
OLD, NEW = (2, 20, 5), (2, 27, 3)


def table(*entries: tuple[str, int] | None) -> list[Gid]:
    return [Gid(index, ipaddress.IPv6Address(entry[0]), entry[1]) for index, entry in enumerate(entries) if entry]


USUAL = table((LINK, 1), (LINK, 2), (A, 1), (A, 2))


@pytest.mark.parametrize(
    ("entries", "environ", "index"),
    [
        pytest.param(USUAL, {}, 3, id="usual"),
        pytest.param(table((LINK, 2), (A, 2)), {}, 1, id="v2-only-driver"),
        pytest.param(table((A, 1), (A, 2)), {}, 1, id="no-ipv6"),
        pytest.param(table((A, 2), (B, 2)), {}, 0, id="first-is-good"),
        pytest.param(table((LINK, 1), (LINK, 2), (GLOBAL6, 1), (GLOBAL6, 2), (A, 1), (A, 2)), {}, 5, id="ipv6-before"),
        pytest.param(table((LINK, 1), (LINK, 2), None, None, (A, 1), (A, 2)), {}, 5, id="hole"),
        pytest.param(table((LINK, 1), (LINK, 2), (A, 1), (A, 2), (B, 1), (B, 2)), {}, 3, id="first-address"),
        pytest.param(USUAL, {"NCCL_IB_ROCE_VERSION_NUM": "1"}, 2, id="v1-wanted"),
        pytest.param(
            table((LINK, 1), (LINK, 2), (A, 1), (A, 2), (B, 1), (B, 2)),
            {"NCCL_IB_ADDR_RANGE": "198.51.100.0/24"},
            5,
            id="range",
        ),
        pytest.param(
            table((LINK, 1), (LINK, 2), (GLOBAL6, 1), (GLOBAL6, 2), (A, 1), (A, 2)),
            {"NCCL_IB_ADDR_FAMILY": "AF_INET6"},
            3,
            id="ipv6",
        ),
        pytest.param(table((LINK, 1), (LINK, 2)), {}, 0, id="link-local-only"),
        pytest.param(table((LINK, 1), (LINK, 2), (GLOBAL6, 1), (GLOBAL6, 2)), {}, 0, id="only-ipv6-but-ipv4-wanted"),
        pytest.param([], {}, 0, id="empty"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "1"}, 1, id="set"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "-1"}, 3, id="set-to-automatic"),
        pytest.param(table((LINK, 2), (A, 2)), {"NCCL_IB_GID_INDEX": "3"}, 3, id="set-past-the-entries"),
    ],
)
def test_automatic(entries, environ, index):
    assert choose(entries, "Ethernet", environ, NEW).index == index


def test_old_versions_take_index_0_unless_told():
    assert choose(USUAL, "Ethernet", {}, OLD).index == 0
    assert choose(USUAL, "Ethernet", {}, OLD).problems
    assert choose(USUAL, "Ethernet", {"NCCL_IB_GID_INDEX": "3"}, OLD).index == 3
    assert choose(USUAL, "Ethernet", {"NCCL_IB_GID_INDEX": "-1"}, OLD).index == 0


def test_infiniband_ignores_the_setting_since_2_22():
    assert choose(table((GLOBAL6, 1)), "InfiniBand", {"NCCL_IB_GID_INDEX": "3"}, (2, 22, 3)).index == 0
    assert choose(table((GLOBAL6, 1)), "InfiniBand", {"NCCL_IB_GID_INDEX": "3"}, (2, 21, 5)).index == 3


@pytest.mark.parametrize(
    ("entries", "environ", "words"),
    [
        (USUAL, {"NCCL_IB_GID_INDEX": "9"}, "index 9 is empty"),
        (USUAL, {"NCCL_IB_GID_INDEX": "1"}, "link-local"),
        (USUAL, {"NCCL_IB_GID_INDEX": "2"}, "RoCE v1"),
        (table((LINK, 1), (LINK, 2)), {}, "link-local"),
        ([], {}, "empty"),
    ],
)
def test_problems(entries, environ, words):
    assert any(words in problem for problem in choose(entries, "Ethernet", environ, NEW).problems)


def test_unreadable_types_are_a_doubt_and_for_old_versions_a_failure():
    entries = table((LINK, 2), (A, 2)) + [Gid(2, ipaddress.IPv6Address(B), None)]
    assert choose(entries, "Ethernet", {}, NEW).doubts
    assert any("cannot be read" in problem for problem in choose(entries, "Ethernet", {}, (2, 21, 5)).problems)


def test_recommended():
    def recommended(entries: list[Gid]) -> int | None:
        gid = recommend(entries)
        return None if gid is None else gid.index

    assert recommended(USUAL) == 3
    assert recommended(table((LINK, 1), (LINK, 2), (GLOBAL6, 2), (A, 2))) == 3
    assert recommended(table((GLOBAL6, 2), (LINK, 2))) == 0
    assert recommended(table((LINK, 2), (A, 1))) is None


@pytest.mark.parametrize(
    ("tree", "indexes"),
    [
        ("healthy-rocev2-gid3-empty", {"rxe0": 1, "rxe1": 1}),
        ("gid3-populated", {"rxe0": 1, "rxe1": 1}),
        ("vlan-gids", {"rxe0": 1, "rxe1": 1}),
        ("bond-active-backup", {"rxe0": 1, "rxe1": 1}),
        ("ipv6-link-local-only", {"rxe0": 0, "rxe1": 0}),
        ("mtu-mismatch", {"rxe0": 1, "rxe1": 1}),
        ("pci-switches-numa-8rail", {f"rxe{i}": 1 for i in range(8)}),
    ],
)
def test_captured_tables(tree, indexes):
    tables = roce_gid.collect(Recorded(open_tree(str(TREES / f"{tree}.tar.gz"))))
    assert {one["device"]: choose(roce_gid.as_gids(one), "Ethernet", {}, NEW).index for one in tables} == indexes
