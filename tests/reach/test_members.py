"""Which nodes are tested, and why others are not."""

from __future__ import annotations

import pytest

from ncdiag.model import NodeFacts, Snapshot
from ncdiag.reach.members import Wanted, left_out, members
from ncdiag.registry import load


def snapshot(flags: list[str]) -> Snapshot:
    """Three nodes; eth0 of the last has these flags."""
    nodes = {}
    for number in (1, 2, 3):
        entry = {"name": "eth0", "interface": "eth0", "address": f"192.0.2.{number}", "prefix": 24}
        link = {"name": "eth0", "mtu": 1500, "flags": flags if number == 3 else ["UP", "RUNNING", "LOWER_UP"]}
        nodes[f"gpu{number}"] = NodeFacts(f"gpu{number}", {"interfaces": {"links": [link], "addresses": [entry]}})
    return Snapshot(nodes)


@pytest.mark.parametrize(
    "flags, words", [(["UP"], "eth0 (192.0.2.3), which has no carrier"), ([], "which is down"), (["UP", "RUNNING"], "")]
)
def test_a_link_without_carrier_is_told(flags: list[str], words: str) -> None:
    found, able = members(snapshot(flags), load(), Wanted(interface="ib0"))
    told = [finding.summary for finding in left_out(snapshot(flags), found, able, Wanted(interface="ib0"))]
    assert words in told[2] and told[0].endswith("there is eth0 (192.0.2.1)")
    found, _ = members(snapshot(flags), load(), Wanted(interface="eth0"))
    assert [member.link for member in found["eth0"]] == ["", "", words.rpartition("which ")[2]]
