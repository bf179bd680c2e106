"""Two ends of a connection that each tell that the other one is gone: who tells it is alive, so what broke lies between them.

A rank that died without a word is accused by others and says nothing itself. Where everybody who is accused speaks, nobody died first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import speaker
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import Event, NcclFacts, Process

_LOST = re.compile(r"Connection closed by|Connection reset by peer|Read error \[|remote process exited|ncclRemoteError")
_KINDS = ("connection-closed", "socket-error", "ib-completion-error")
_LOCAL = re.compile(r"localGid (?:::ffff:)?(?P<address>[0-9a-fA-F:.]+)")
_REMEDY = (
    "look at what lies between the two at that time: dmesg -T and the port's counters (ethtool -S, perfquery) of both nodes, the switch's log; "
    "firewalls, NAT and idle time limits that reset connections"
)


@dataclass
class _End:
    """A process, or a source that does not tell its processes apart, that tells of a loss."""

    at: Evidence
    order: float
    names: set[str] = field(default_factory=set)
    """Its own host and addresses."""
    accused: set[str] = field(default_factory=set)
    """Hosts or addresses of the peers that it lost."""
    voices: int = 1
    """How many of them."""


def both_ends(signals: Sequence[Signal], facts: NcclFacts, order: dict[str, float]) -> Iterator[Signal]:
    """Changes what tells of the loss where all who are accused speak. `order`: source -> position of its first line."""
    if any(signal.says >= Says.STRONG and not signal.condition for signal in signals):
        return
    told = [signal for signal in signals if _tells(signal)]
    ends = _ends(told, facts, order)
    sides, quiet = _sides(ends, facts), _quiet(ends, facts)
    heard = _all_heard(ends, facts) or (not quiet and _alone(sides))
    if not heard and not _each_other(sides, ends, facts):
        return
    for signal in told if heard else ():
        signal.cause, signal.says = "", Says.CASCADE
    found = sorted(ends.values(), key=lambda end: end.order)
    rdma = any(event.kind == "ib-completion-error" for event in facts.events)
    many = not heard and (
        quiet or any(side.voices > 1 for side in sides)
    )  # one more of a node's ranks may have been the first
    rest = "" if heard else ", unless one of which no log is here ended first"
    yield Signal(
        "ib-path-unreachable" if rdma else "bootstrap-peer-unreachable",
        Says.HINT,
        f"both ends tell that the other one is gone, so neither had ended: something between them broke their connections{rest}",
        [end.at for end in found],
        order=found[-1].order + 0.5 if many else found[0].order - 0.5,
        candidates=() if many else ("ib-link-or-hca-fault", "bootstrap-blocked-firewall"),
        remedy=_REMEDY,
    )


def _tells(signal: Signal) -> bool:
    kind = signal.cause in ("", "rank-died") and signal.says <= Says.HINT and not signal.condition
    return kind and bool(signal.evidence) and _LOST.search(signal.evidence[0].text) is not None


def _ends(told: Sequence[Signal], facts: NcclFacts, order: dict[str, float]) -> dict[object, _End]:
    ends: dict[object, _End] = {}
    known: set[tuple[str, int | None]] = set()
    for event in facts.events:
        if event.kind not in _KINDS or event.level == "INFO" or event.process is None:
            continue
        known.add((event.at.source, event.at.line))
        at = Evidence(event.at.source, event.at.text.strip(), event.at.line)
        end = ends.setdefault(event.process, _End(at, order.get(at.source, 0.0) + event.at.line))
        end.names |= _names(facts.processes[event.process]) | _own(event)
        end.accused |= {_host(str(event.fields["peer"]))} if event.fields.get("peer") else set()
    for signal in told:
        item = signal.evidence[0]
        if (item.source, item.line) in known:
            continue
        end = ends.setdefault(_who(item, facts), _End(item, signal.order))
        end.accused |= {_host(str(signal.where["peer"]))} if signal.where.get("peer") else set()
    return ends


def _who(item: Evidence, facts: NcclFacts) -> object:
    """The process that a line is of, else its source and what its prefix says."""
    here = [index for index, process in enumerate(facts.processes) if item.source in process.sources]
    if len(here) == 1:
        return here[0]
    said = speaker(item.text)
    for comm in sorted(facts.communicators, key=lambda comm: -comm.nranks)[:1]:
        for rank in comm.ranks:
            if rank.rank == said.get("rank") and rank.process in here:
                return rank.process
    return item.source, str(said.get("rank", said.get("pid", "")))


def _sides(ends: dict[object, _End], facts: NcclFacts) -> list[_End]:
    """What the processes of each host that accuse somebody tell together, or those of each source where hosts are not known."""
    accusing = {key: end for key, end in ends.items() if end.accused}
    sides = _together([(_host_of(key, facts) or key, end) for key, end in accusing.items()])
    if len(sides) > 2 and len({end.at.source for end in accusing.values()}) == 2:
        return _together([(end.at.source, end) for end in accusing.values()])
    return sides


def _host_of(key: object, facts: NcclFacts) -> str | None:
    return facts.processes[key].host if isinstance(key, int) else None


def _together(ends: Sequence[tuple[object, _End]]) -> list[_End]:
    sides: dict[object, _End] = {}
    for key, end in ends:
        side = sides.setdefault(key, replace(end, names=set(), accused=set(), voices=0))
        side.names |= end.names
        side.accused |= end.accused
        side.voices += 1
    return list(sides.values())


def _all_heard(ends: dict[object, _End], facts: NcclFacts) -> bool:
    """Whether everybody of a communicator that spans hosts tells of a loss."""
    for comm in facts.communicators:
        members = {rank.process for rank in comm.ranks}
        hosts = {facts.processes[index].host for index in members}
        if len(comm.ranks) == comm.nranks > 1 and len(hosts) > 1 and members <= ends.keys():
            return True
    return False


def _quiet(ends: dict[object, _End], facts: NcclFacts) -> bool:
    """Whether a process of the same hosts tells of no loss."""
    hosts = {_host_of(key, facts) for key in ends}
    return any(process.host in hosts and index not in ends for index, process in enumerate(facts.processes))


def _alone(sides: Sequence[_End]) -> bool:
    """Whether two hosts, of which one process each is known, name each other, and nobody else."""
    if len(sides) != 2 or any(side.voices > 1 for side in sides):
        return False
    one, two = sides
    return one.accused <= two.names and two.accused <= one.names


def _each_other(sides: Sequence[_End], ends: dict[object, _End], facts: NcclFacts) -> bool:
    """Whether two hosts, sources or voices, and no more, accuse one peer each, not the same one, and none that is known to be a third."""
    if len(sides) != 2:
        return False
    one, two = sides
    others = [process for index, process in enumerate(facts.processes) if index not in ends]
    hosts = {_host_of(key, facts) for key in ends}
    third = {name for process in others if process.host not in hosts for name in _names(process)}
    return (
        all(len(a.accused) == 1 or a.accused <= b.names for a, b in ((one, two), (two, one)))
        and one.accused.isdisjoint(two.accused)
        and not (one.accused & (one.names | third) or two.accused & (two.names | third))
    )


def _names(process: Process) -> set[str]:
    addresses = (
        process.bootstrap_address,
        process.oob_address,
        *(device.address for device in process.net_devices),
        process.host,
    )
    return {_host(address) for address in addresses if address}


def _own(event: Event) -> set[str]:
    local = _LOCAL.search(event.at.text)
    return {local["address"]} if local else set()


_NUMBERS = re.compile(r"[\d.]+|[0-9a-fA-F]*:[0-9a-fA-F:.]*")


def _host(name: str) -> str:
    """`[::ffff:192.0.2.7]:29500` -> `192.0.2.7`, `node-7.cluster.local<0>` -> `node-7`."""
    plain = name.partition("<")[0].strip("[]").removeprefix("::ffff:")
    if plain.count(":") == 1:
        plain = plain.partition(":")[0]
    return plain if _NUMBERS.fullmatch(plain) else plain.partition(".")[0]
