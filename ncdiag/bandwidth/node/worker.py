"""The whole life of one rank: joins the group, times collectives, checks their results."""

from __future__ import annotations

from typing import Any, Dict

from ncdiag.bandwidth.node.counters import hca_totals
from ncdiag.bandwidth.node.group import Emit, Group
from ncdiag.bandwidth.node.itself import myself
from ncdiag.bandwidth.node.operations import Case, places
from ncdiag.bandwidth.node.timing import measure


def run(job: Dict[str, Any], emit: Emit) -> None:
    """The whole life of one rank. Raises what torch raises."""
    before = hca_totals()
    group = Group(job, emit)
    if job.get("self"):
        emit(myself(group, job["self"] == "all"))
    for op in job["ops"]:
        for size in job["sizes"]:
            for in_place in places(op, group.cuda):
                emit({"event": "stage", "stage": "%s of %d bytes" % (op, size)})
                case = Case(group, op, int(size), in_place, int(job["seed"]))
                emit(measure(group, case, job))
                case.release()
    group.dist.all_reduce(group.small)
    group.wait()
    emit({"event": "done", "counters": {name: value - before.get(name, 0) for name, value in hca_totals().items()}})
    group.close()
