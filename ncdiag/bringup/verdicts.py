"""Full looks at all nodes, and what they lead to: who holds up the others, or the first error of a start that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag import __version__, stages
from ncdiag.bringup import ray_ends
from ncdiag.bringup.not_started import not_started
from ncdiag.bringup.output import NAME, Output
from ncdiag.bringup.places import place
from ncdiag.bringup.timeline import Row, Timeline
from ncdiag.hang.content import DumpContent
from ncdiag.hang.dump import ras_services, recorders
from ncdiag.hang.scene import look
from ncdiag.hang.verdict import Verdict
from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.logs.remedies import REMEDIES
from ncdiag.model import Cause, Evidence, RankState
from ncdiag.nccl import ras

_GENERIC = ("unresolved", "rank-died", "engine-exception", "rank-missing", "healthy", "slow-not-hung")
"""Causes that say less than the knowledge of which process ended first."""
_UNREACHED = ("bootstrap-blocked-firewall", "bootstrap-peer-unreachable")
_READ_KERNEL = "read the kernel log of that node (dmesg) for what ended it, and the end of that rank's log; restart all ranks together"


def states_of(answers: Sequence[Mapping[str, Any]]) -> list[RankState]:
    """All processes, each once: two ways may lead to the same node."""
    found: dict[tuple[str, int], RankState] = {}
    for answer in answers:
        for data in answer.get("states", ()):
            state = RankState.from_dict(data)
            kept = found.get((state.node, state.pid))
            if kept is None or (not kept.threads and state.threads):
                found[state.node, state.pid] = state
    return list(found.values())


def logs_of(answers: Sequence[Mapping[str, Any]], output: Output) -> dict[str, list[str]]:
    """Log name -> lines, of all nodes and of the command; with several nodes the name begins with the node's."""
    several = len({answer["node"] for answer in answers}) > 1
    logs = {
        (f"{answer['node']}:{name}" if several and name != answer["node"] else name): list(lines)
        for answer in answers
        for name, lines in answer.get("logs", {}).items()
    }
    if lines := output.lines:
        logs[NAME] = lines
    return logs


def errors_of(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Nodes that could not be looked at, and why."""
    return [f"{answer['node']}: {answer['error']}" for answer in answers if answer.get("error")]


def content_of(answers: Sequence[Mapping[str, Any]], output: Output, meta: Mapping[str, Any]) -> DumpContent:
    """Everything that a full look read; NCCL RAS and flight recorders of this machine are asked besides."""
    states = states_of(answers)
    output.lend(states)
    notes = errors_of(answers) + [note for answer in answers for note in answer.get("notes", ())]
    content = DumpContent(states, logs=logs_of(answers, output), notes=notes, meta={"version": __version__, **meta})
    for (_, address), netns in ras_services(states).items():
        try:
            content.ras.append(ras.ask(address, netns=netns))
        except ras.RasError as error:
            notes.append(f"NCCL RAS did not answer: {error}")
    content.flight = recorders(states, notes)
    return content


def failure(
    answers: Sequence[Mapping[str, Any]],
    states: Sequence[RankState],
    output: Output,
    timeline: Timeline,
    exit_code: int | None,
    oom: Mapping[str, int],
) -> list[Cause]:
    """Why a start ended: the first error of all logs; where they name none, the process that ended first.

    `states`: the last look, in which the other nodes still wait. `oom`: node -> processes that its kernel has ended for want of memory since the start.
    """
    logs = logs_of(answers, output)
    streams = [
        Stream(name, iter([raw]), raw) for name, lines in sorted(logs.items()) if (raw := "\n".join(lines).encode())
    ]
    causes = [cause for cause in of_streams(streams).verdict.causes if cause.cause not in ("healthy", "slow-not-hung")]
    for cause in causes:
        place(cause, timeline, answers, logs)
        _by_peer(cause, states)
    unborn = not_started(logs, exit_code)
    if unborn is not None and (not causes or causes[0].cause in ("unresolved", "rank-died", "rank-missing")):
        return [unborn]
    lost = ray_ends.lost_node(answers)
    if lost is not None and (lost.confidence != "possible" or not causes or causes[0].cause in _GENERIC):
        return [lost, *causes]
    died = ray_ends.dead_actor(answers, logs)
    if died is not None and (not causes or causes[0].cause in _GENERIC) and not _before(causes, died):
        return [died, *(cause for cause in causes if cause.cause not in ("rank-died", "unresolved"))]
    first = timeline.first_end()
    if (
        first is not None
        and first.role not in ("api-server", "launcher")
        and (not causes or causes[0].cause in _GENERIC or _called_slow(first, causes[0]))
    ):
        causes = _ended_first(first, causes, oom.get(first.node, 0))
    if causes:
        return causes
    last = [Evidence(NAME, line) for line in output.lines[-5:]]
    return [
        Cause("unresolved", "possible", f"it ended with status {exit_code} and printed nothing that says why", {}, last)
    ]


def _before(causes: Sequence[Cause], died: Cause) -> bool:
    """Whether an exception was printed before Ray said that a worker died: then that may be why it did."""
    told = [item for cause in causes if cause.cause == "engine-exception" for item in cause.evidence[:1]]
    end = died.evidence[0]
    return any(item.source == end.source and (item.line or 0) < (end.line or 0) for item in told)


def _called_slow(first: Row, cause: Cause) -> bool:
    """The log shows only that others wait for it: who has ended is not late."""
    rank = cause.where.get("rank")
    return cause.cause == "slow-load-peer-timeout" and cause.confidence == "possible" and str(rank) == str(first.rank)


def _ended_first(first: Row, causes: list[Cause], oom_kills: int) -> list[Cause]:
    """The logs say no more than that something ended: what ended first, and where."""
    stage = first.spans[-1][0] if first.spans else None
    where = {"node": first.node, "rank": first.rank, "stage": stage}
    place = {name: value for name, value in where.items() if value is not None}
    if causes and causes[0].cause == "engine-exception":
        causes[0].where = {**place, **causes[0].where}
        return causes
    evidence = [
        Evidence(f"process {first.pid} on {first.node}", f"it ended at {first.ended_s:.1f} s, before the others")
    ]
    evidence += [item for cause in causes for item in cause.evidence][:6]
    summary = f"{first.name} ({first.node}, pid {first.pid}) ended before the others, and no log says why"
    if oom_kills:
        evidence.insert(0, Evidence(f"/proc/vmstat of {first.node}", f"oom_kill rose by {oom_kills} since the start"))
        summary = f"{first.name} ({first.node}, pid {first.pid}) ended first, when the kernel of its node ended a process for want of memory"
        return [Cause("host-memory-oom", "likely", summary, place, evidence, [], REMEDIES["host-memory-oom"])]
    rest = [
        cause for cause in causes if cause.cause not in ("rank-died", "unresolved") and not _called_slow(first, cause)
    ]
    return [Cause("rank-died", "likely", summary, place, evidence, [], _READ_KERNEL), *rest]


def _by_peer(cause: Cause, states: Sequence[RankState]) -> None:
    """The address that an error names, looked up among what the other nodes' processes listen on and talk with."""
    peer = str(cause.where.get("peer") or "")
    if cause.cause == "rank-died":
        _at_peer(cause, [state for state in states if any(peer == end for end in _talks_from(state))])
        return
    for state in states:
        ends = [(socket.state, socket.local.rpartition(":")[0].strip("[]")) for socket in state.sockets]
        usual = _talks_from(state)
        if cause.cause in _UNREACHED and ("LISTEN", peer) in ends and usual and peer not in usual:
            chosen = [
                Evidence(f"environment of pid {state.pid} on {state.node}", f"{name}={state.settings[name]}")
                for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
                if name in state.settings
            ]
            cause.cause, cause.remedy = "socket-ifname-wrong", REMEDIES["socket-ifname-wrong"]
            cause.summary = f"rank {state.rank} ({state.node}, pid {state.pid}) listens for its peers on {peer}, where they do not reach it; they do at {', '.join(sorted(usual))}"
            cause.where = {"node": state.node, "rank": state.rank, "stage": look(state).stage}
            cause.evidence += [Evidence(f"sockets of pid {state.pid} on {state.node}", f"LISTEN on {peer}"), *chosen]


def _talks_from(state: RankState) -> set[str]:
    """The addresses from which it talks with other machines."""
    ends = {
        socket.local.rpartition(":")[0].strip("[]")
        for socket in state.sockets
        if socket.state in ("ESTABLISHED", "CLOSE_WAIT")
    }
    return {address for address in ends if not address.startswith("127.")}


def _at_peer(cause: Cause, there: Sequence[RankState]) -> None:
    """The process that ended is at the address that its peer names: on that node, and of its ranks where it has one only."""
    nodes, ranks = {state.node for state in there}, {state.rank for state in there if state.rank is not None}
    if len(nodes) == 1 and cause.where.get("node") not in nodes:
        stage = {"stage": look(there[0]).stage} if len(there) == 1 else {}
        where = {"node": nodes.pop(), **({"rank": ranks.pop()} if len(ranks) == 1 else {}), **stage}
        cause.where = {**where, "peer": cause.where["peer"]}


def complete(cause: Cause, verdict: Verdict, answers: Sequence[Mapping[str, Any]], nodes: int) -> None:
    """Adds the stage in which the others wait, and the node where a rank should be and nothing is.

    `nodes`: how many the engine runs on. A rank on a node that was not looked at is not known to be missing.
    """
    waiting = [row.stage for row in verdict.ranks if row.rank is not None and row.state == "waiting"]
    if waiting and cause.cause not in ("healthy", "slow-not-hung"):
        cause.where.setdefault("stage", min(waiting, key=stages.order))
    if cause.cause != "rank-missing":
        return
    seen = [answer for answer in answers if not answer.get("error")]
    empty = [answer["node"] for answer in seen if not answer.get("states")]
    if len(seen) < max(nodes, len(answers)):
        cause.confidence = "possible"
        cause.summary += "; not all of its nodes were looked at"
        cause.evidence += [Evidence(answer["node"], str(answer["error"])) for answer in answers if answer.get("error")]
        if len(answers) < nodes:
            verdict.next.insert(
                0,
                f"the other nodes: ncdiag bringup --nodes ssh:NODESET (the engine has {nodes}, {len(answers)} looked at)",
            )
    elif len(empty) == 1:
        cause.where.setdefault("node", empty[0])
        cause.evidence.append(Evidence(f"processes of {empty[0]}", "none of this engine was found there"))
