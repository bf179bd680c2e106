"""What a fault is called: who does not reach whom, and how that shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ncdiag.nodeset import counted, fold
from ncdiag.reach.infer import Fault, explains
from ncdiag.reach.seen import Run, trials
from ncdiag.reach.wire import SIZES

WORDS = {
    "refused": "refused",
    "dropped": "no answer: dropped",
    "unreachable": "unreachable",
    "reset": "reset",
    "stuck": "small messages pass, large ones do not",
    "stranger": "another machine answers",
    "short": "full-sized packets are lost",
}

OWN = {
    "ENETUNREACH": "it has no route there",
    "EHOSTUNREACH": "its own routes call the address unreachable",
    "EINVAL": "as with a blackhole route of its own",
    "EACCES": "as with a prohibit route of its own",
    "EPERM": "a filter of its own forbids it (cgroup, eBPF, seccomp)",
    "EADDRNOTAVAIL": "its own address is gone, or no local port is left",
    "ENETDOWN": "its own interface is down",
}
"""What a kernel means that refuses a connection at once. Source: ip-route(8), types of routes; connect(2), bind(2)."""


def summary(run: Run, fault: Fault, on: str) -> str:
    """A sentence. `on`: what was tried and where, as `port 29500, eth0 (192.0.2.1)`."""
    names = run.names
    near, far = fold(names[node] for node in fault.nodes), fold(names[node] for node in fault.others)
    if fault.outcome == "stuck":
        return _swallowed(run, fault, near, far, on)
    ill = [
        f"{run.members[node].interface} of {names[node]} {run.members[node].link}"
        for node in {*fault.nodes, *fault.others}
        if run.members[node].link
    ]
    word = "; ".join([_word(names, fault), *sorted(ill)])
    if fault.kind == "border":
        return f"{near} and the other {counted(len(fault.others), 'node')} do not reach each other on {on}: {word}"
    if fault.kind == "link":
        back = "; the way back works" if fault.one_way else ", nor the other way round" if fault.back else ""
        return f"{near} cannot reach {far} on {on}: {word}{back}"
    return {
        "both": f"{near} reaches nobody and nobody reaches it on {on}: {word}",
        "to": f"nobody reaches {near} on {on}: {word}; what it sends arrives",
        "from": f"{near} reaches nobody on {on}: {word}; the others reach it",
    }[fault.kind] + f" ({fault.failed} of {counted(fault.tested, 'test')})"


def _swallowed(run: Run, fault: Fault, near: str, far: str, on: str) -> str:
    """They reach each other, but not with full-sized packets."""
    ways = {"both": f"to and from {near}", "to": f"to {near}", "from": f"from {near}",
            "border": f"between {near} and the other {counted(len(fault.others), 'node')}",
            "link": f"from {near} to {far}" if fault.one_way else f"between {near} and {far}"}  # fmt: skip
    told = [trial for trial in trials(run, "mtu") if explains(fault, trial)]
    sizes = [int(trial.detail) for trial in told if trial.outcome == "ok"]
    least = (
        f"packets of up to {min(sizes)} bytes (path MTU) pass"
        if sizes
        else f"none of the sizes tried, {min(SIZES)} bytes and more, passes whole"
    )
    return f"large messages {ways[fault.kind]} are lost on {on}, small ones pass; {least}; {fault.failed} of {counted(fault.tested, 'test')}"


def _word(names: Sequence[str], fault: Fault) -> str:
    if fault.local:
        own = fold({names[trial.source] for trial in fault.local})
        return f"the kernel of {own} refuses at once ({fault.detail}: {OWN.get(fault.detail, 'an error of its own')})"
    told = fault.detail and fault.outcome in ("unreachable", "stranger")
    return WORDS[fault.outcome] + (f" ({_detail(names, fault)})" if told else "")


def _detail(names: Sequence[str], fault: Fault) -> str:
    if fault.outcome == "stranger" and fault.detail.isdecimal() and int(fault.detail) < len(names):
        return f"{names[int(fault.detail)]}: two machines have one address"
    return fault.detail
