"""What Ray says of workers and nodes that ended, in words that name the machine (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.logs.remedies import REMEDIES
from ncdiag.model import Cause, Evidence

_DIED = re.compile(r"ActorDiedError|The actor died unexpectedly")
_RAYLET = re.compile(r"A worker died or was killed .* Worker IP address: (?P<ip>\S+) .*Worker PID: (?P<pid>\d+)")
_FIELD = re.compile(r"(?:^|\s)(class_name|pid|ip): (\S+)\s*$")
_DETAIL = re.compile(r"The actor is dead because (.{1,300})")
_OWN = "The worker died unexpectedly"
_FULL = ("[Errno 28]", "[Errno 122]")
"""No space left on the device; the quota is used up."""
LINES = 12
"""How many lines Ray takes to say which actor died."""


def lost_node(answers: Sequence[Mapping[str, Any]]) -> Cause | None:
    """A node that was in the cluster and is no more. Only possible where it may have left before this start."""
    lost = [answer for answer in answers if answer.get("lost")]
    for answer in sorted(lost, key=lambda answer: str(answer["lost"]) != "now"):
        node, now = answer["node"], answer["lost"] == "now"
        item = Evidence(f"Ray's list of nodes, {node}", str(answer["error"]))
        summary = f"node {node} left the Ray cluster" + (
            " while the engine started" if now else ", maybe before this start"
        )
        remedy = REMEDIES["ray-node-lost"]
        return Cause("ray-node-lost", "likely" if now else "possible", summary, {"node": node}, [item], [], remedy)
    return None


def dead_actor(answers: Sequence[Mapping[str, Any]], logs: Mapping[str, Sequence[str]]) -> Cause | None:
    """The first worker that Ray reports as dead, on the node that Ray names."""
    for source, lines in logs.items():
        for number, line in enumerate(lines):
            if told := _RAYLET.search(line):
                fields = {"ip": told["ip"], "pid": told["pid"]}
                return _died(answers, Evidence(source, line, number + 1), fields, [])
            if _DIED.search(line):
                rest = list(lines[number : number + LINES])
                fields = {match[1]: match[2] for text in rest if (match := _FIELD.search(text))}
                if "ip" in fields:
                    return _died(answers, Evidence(source, line, number + 1), fields, rest)
    return None


def _died(
    answers: Sequence[Mapping[str, Any]], said: Evidence, fields: Mapping[str, str], rest: Sequence[str]
) -> Cause:
    address = fields["ip"]
    node = next((answer["node"] for answer in answers if answer.get("address") == address), address)
    detail = next((match[1] for text in rest if (match := _DETAIL.search(text))), "")
    process = f"{fields.get('class_name', 'a worker')}, pid {fields.get('pid', 'unknown')}"
    more = [Evidence(said.source, detail, said.line)] if detail else []
    summary, remedy = f"a Ray worker ({process}) on {node} died", REMEDIES["rank-died"]
    own = next((a for a in answers if a.get("address") == address and _OWN in str(a.get("error"))), None)
    if own is None:
        return Cause("rank-died", "likely", summary, {"node": node}, [said, *more], [], remedy)
    more.append(Evidence(f"ncdiag's own task on {node}", str(own["error"])))
    if refused := str(own.get("refused") or ""):
        more.append(Evidence(f"Ray's agent on {node}, which was to unpack 64 KiB", refused))
    if any(number in refused for number in _FULL):
        summary = f"the file system of Ray's folder on {node} is full, and every worker that Ray starts there dies"
        return Cause("disk-full", "likely", summary, {"node": node}, [said, *more], [], REMEDIES["disk-full"])
    summary = f"every worker that Ray starts on {node} dies, that of ncdiag's look too"
    remedy = f"look at {node} itself: space and memory (df -h /tmp/ray, free -m, dmesg), then raylet.err and python-core-worker-*.log there"
    return Cause("rank-died", "likely", summary, {"node": node}, [said, *more], [], remedy)
