"""Runs the agents on a fleet and gathers their reports."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence

from ncdiag import payload
from ncdiag.check import check
from ncdiag.fleet.base import FleetError, Progress
from ncdiag.fleet.remote import Answer, RemoteFleet, reason
from ncdiag.model import Finding, Snapshot
from ncdiag.reach.judge import Member, Run, judge
from ncdiag.registry import ProbeSet

SLOT_S = 2.5
"""A round: longer than the tests of one pair may take, and than what the nodes' clocks may be wrong by."""

START_S = 3.0
START_A_NODE_S = 0.03
"""How long agents have to come up before the first round: a constant, and the cost of one more connection for us."""

EPHEMERAL = (32768, 60999)
"""Linux's default range, in which NCCL's and gloo's ports lie."""

WANTED = ("bootstrap-interface",)
"""Probes whose facts say which addresses are under test."""

ROLES = (("NCCL", "nccl"), ("gloo", "gloo"), ("vLLM and Ray", "vllm"))


def members(snapshot: Snapshot, probes: ProbeSet, interface: str | None = None) -> dict[str, list[Member]]:
    """Whose addresses (NCCL, gloo, vLLM and Ray) -> the nodes with them; a role with NCCL's addresses is not listed again.

    `interface`: that one on every node instead. Raises FleetError when fewer than two nodes have an address.
    """
    if interface is not None:
        return {
            interface: _enough(
                [member for name in snapshot.nodes for member in _on(snapshot, name, interface)], interface
            )
        }
    seen = {
        finding.where["node"]: finding.observed
        for finding in check(snapshot, probes.chosen(WANTED))
        if isinstance(finding.observed, Mapping) and "nccl" in finding.observed and "node" in finding.where
    }
    found: dict[str, list[Member]] = {}
    for what, role in ROLES:
        chosen = [
            member
            for name, told in seen.items()
            if told[role]["address"]
            for member in _on(snapshot, name, told[role]["interface"], told[role]["address"])
        ]
        if len(chosen) > 1 and not any(
            {one.address for one in chosen} <= {other.address for other in known} for known in found.values()
        ):
            found[what] = chosen
    if not found:
        _enough([], "NCCL's")
    return found


def _enough(found: list[Member], what: str) -> list[Member]:
    if len(found) < 2:
        raise FleetError(
            f"{len(found)} node with an address on {what} interface; reachability needs two or more (see ncdiag preflight)"
        )
    return found


def _on(snapshot: Snapshot, name: str, interface: str | None, address: str | None = None) -> Iterator[Member]:
    """The node with its address on one interface, the first one where several are there; none where there is none."""
    told = snapshot.facts(name, "interfaces") or {"addresses": [], "links": []}
    for entry in told["addresses"]:
        usable = not entry["address"].startswith(("127.", "fe80:")) and entry["address"] != "::1"
        if entry["interface"] == (interface or "").partition(":")[0] and usable and address in (None, entry["address"]):
            mtu = next((link["mtu"] for link in told["links"] if link["name"] == entry["interface"]), None)
            meta = snapshot.nodes[name].meta
            yield Member(name, str(meta.get("hostname", name)), entry["address"], mtu or 1500, entry["interface"],
                         (meta.get("clock") or {}).get("offset_s"))  # fmt: skip
            return


def test(
    fleet: RemoteFleet,
    what: str,
    nodes: Sequence[Member],
    named: Sequence[int],
    budget_s: float,
    progress: Progress,
    *,
    seed: int | None = None,
) -> list[Finding]:
    """Tests the nodes against each other within `budget_s`, the time to come up not counted. Raises FleetError."""
    source = random.Random(seed)
    limit = max(1, int(budget_s / SLOT_S))
    lead = START_S + START_A_NODE_S * len(nodes)
    request = {
        "token": secrets.token_hex(16),
        "nodes": [
            {"address": one.address, "mtu": one.mtu, "offset_s": one.offset_s, "hostname": one.hostname}
            for one in nodes
        ],
        "ports": source.sample(range(*EPHEMERAL), 3),
        "named": sorted(set(named)),
        "limit": limit,
        "seed": source.randrange(1 << 30),
        "start": time.time() + lead,
        "slot_s": SLOT_S,
    }
    timeout_s = lead + limit * SLOT_S + 10.0
    answers = fleet.run(payload.pack_call("ncdiag.reach.agent", request), timeout_s, progress, together=True)
    return list(judge(_gathered(what, nodes, request, answers, timeout_s)))


def _gathered(
    what: str, nodes: Sequence[Member], request: Mapping[str, object], answers: Mapping[str, Answer], timeout_s: float
) -> Run:
    reports, silent = {}, {}
    for number, member in enumerate(nodes):
        answer = answers.get(member.name)
        if answer is None:
            silent[number] = "the fleet no longer has it"
            continue
        try:
            report = json.loads(payload.unwrap("\n" + answer.out))
        except ValueError as error:
            silent[number] = reason(answer, str(error), timeout_s)
            continue
        if report["number"] is None:
            silent[number] = f"no interface there holds {member.address} any more"
        elif report["port"] is None:
            silent[number] = f"no port to listen on was free ({request['ports']})"
        else:
            reports[number] = report
    return Run(what, nodes, request, reports, silent)
