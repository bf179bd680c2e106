"""Runs the agents on a fleet and gathers their reports."""

from __future__ import annotations

import json
import math
import random
import secrets
import time
from collections.abc import Mapping, Sequence

from ncdiag import payload
from ncdiag.fleet.base import Progress
from ncdiag.fleet.remote import Answer, RemoteFleet, reason
from ncdiag.model import Finding
from ncdiag.reach import schedule
from ncdiag.reach.judge import judge
from ncdiag.reach.members import Wanted
from ncdiag.reach.seen import Member, Run

SLOT_S = 2.5
"""A round: longer than the tests of one pair may take, and than what the nodes' clocks may be wrong by."""

START_S = 3.0
START_A_NODE_S = 0.03
"""How long agents have to come up before the first round: a constant, and the cost of one more connection for us."""

RDMA_START_S = 2.0
"""More, where drivers of RDMA cards have to come up."""

EPHEMERAL = (32768, 60999)
"""Linux's default range, in which NCCL's and gloo's ports lie."""

RDMA_SLOT_S = 4.5
"""A round with RDMA: also long enough for an address that nobody resolves (1 s) and for messages that are sent again (lanes.SEND_S)."""


def test(
    fleet: RemoteFleet,
    what: str,
    nodes: Sequence[Member],
    wanted: Wanted,
    progress: Progress,
    *,
    labels: Mapping[int, str] | None = None,
    seed: int | None = None,
) -> list[Finding]:
    """Tests the nodes, two or more, against each other. `labels`: further ports to test, and what each stands for."""
    source = random.Random(seed)
    slot_s = RDMA_SLOT_S if any(one.rdma for one in nodes) else SLOT_S
    sides = (
        None
        if wanted.between is None
        else [[number for number, one in enumerate(nodes) if one.name in side] for side in wanted.between]
    )
    limit = None if wanted.every or sides else max(1, int(wanted.budget_s / slot_s))
    lead = START_S + START_A_NODE_S * len(nodes) + (RDMA_START_S if slot_s == RDMA_SLOT_S else 0.0)
    request = {
        "token": secrets.token_hex(16),
        "nodes": [
            {"address": one.address, "mtu": one.mtu, "offset_s": one.offset_s, "hostname": one.hostname, "rdma": list(one.rdma),
             "services": dict(one.services)}
            for one in nodes
        ],
        "ports": source.sample(range(*EPHEMERAL), 3),
        "named": sorted({*wanted.ports, *(labels or {})}),
        "limit": limit,
        "between": sides,
        "seed": source.randrange(1 << 30),
        "start": time.time() + lead,
        "slot_s": slot_s,
    }  # fmt: skip
    rounds = len(schedule.rounds(len(nodes), limit, between=sides))
    timeout_s = math.ceil(lead + rounds * slot_s + 10.0)
    packed = payload.pack_call("ncdiag.reach.agent", request)
    answers = fleet.run(packed, timeout_s, progress, only={one.name for one in nodes}, together=True)
    return list(judge(_gathered(what, nodes, request, answers, timeout_s, labels or {})))


def _gathered(
    what: str,
    nodes: Sequence[Member],
    request: Mapping[str, object],
    answers: Mapping[str, Answer],
    timeout_s: float,
    labels: Mapping[int, str],
) -> Run:
    reports, silent = {}, {}
    for number, member in enumerate(nodes):
        answer = answers.get(member.name)
        if answer is None:
            silent[number] = "the fleet no longer has it"
            continue
        try:
            report = json.loads(payload.unwrap("\n" + answer.out))
            _ = report["number"], report["port"], report["tests"], report["started"]
        except (ValueError, KeyError, TypeError) as error:
            silent[number] = reason(
                answer, str(error) if type(error) is ValueError else "its output holds no report", timeout_s
            )
            continue
        if report["number"] is None:
            silent[number] = f"no interface there holds {member.address} any more"
        elif report["port"] is None:
            silent[number] = f"no port to listen on was free ({request['ports']})"
        else:
            reports[number] = report
    return Run(what, nodes, request, reports, silent, labels)
