"""Ranks of one communicator that differ where they have to be alike."""

from __future__ import annotations

from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line as LogLine
from ncdiag.logs.model import speaker
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import Communicator, Line, NcclFacts, Rank
from ncdiag.nodeset import ranks

_OLD, _NEW = "P2P/IPC", "P2P/CUMEM"
_SETTINGS = ("NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE")
VERSIONS_LIMIT = 64


def sharing(facts: NcclFacts, order: dict[str, float]) -> Iterator[Signal]:
    """Ranks of one host that share GPU memory in two ways: the handles of one are nothing that the other can open. `order`: source -> position of its first line."""
    for comm in facts.communicators:
        if not all(any(name.startswith(way) for name in comm.transports) for way in (_OLD, _NEW)):
            continue
        old, new = _by(comm, _OLD), _by(comm, _NEW)
        nodes = {rank.node for rank in old} & {rank.node for rank in new}
        old, new = ([rank for rank in group if rank.node in nodes] for group in (old, new))
        if not old or not new or {rank.rank for rank in old} & {rank.rank for rank in new}:
            continue
        setting = _setting(facts, old, new)
        lines = [*([setting[1]] if setting else []), _link(old[0], _OLD), _link(new[0], _NEW)]
        evidence = [Evidence(line.source, line.text.strip(), line.line) for line in lines if line is not None]
        first = lines[0]
        yield Signal(
            "cumem-failure",
            Says.STRONG,
            f"rank {ranks(rank.rank for rank in old)} shares GPU memory by CUDA IPC, rank {ranks(rank.rank for rank in new)} by cuMem"
            + (f": {setting[0]} is set for some ranks only" if setting else ""),
            evidence,
            {"node": old[0].node, "rank": ranks(rank.rank for rank in (old if len(old) <= len(new) else new))},
            order=order.get(first.source, 0.0) + first.line if first is not None else 0.0,
            remedy="the same NCCL_CUMEM_ENABLE for all ranks: unset it everywhere, or set it in what starts all of them (mpirun -x, srun --export, the pods' template)",
        )
        return


def _by(comm: Communicator, transport: str) -> list[Rank]:
    return [rank for rank in comm.ranks if any(link.transport.startswith(transport) for link in rank.links)]


def _link(rank: Rank, transport: str) -> Line | None:
    return next((link.at for link in rank.links if link.transport.startswith(transport)), None)


def _setting(facts: NcclFacts, old: list[Rank], new: list[Rank]) -> tuple[str, Line] | None:
    """The variable that only some of them read, and where."""
    for name in _SETTINGS:
        have = [
            facts.processes[rank.process] for rank in [*old, *new] if name in facts.processes[rank.process].settings
        ]
        if have and len(have) < len(old) + len(new) and name in have[0].evidence:
            return f"{name}={have[0].settings[name].strip().rstrip('.')}", have[0].evidence[name]
    return None


class NcclVersions:
    """vLLM's line about the NCCL that it loads, one a node: `vLLM is using nccl==2.27.5`."""

    triggers = ("vLLM is using nccl==",)

    def __init__(self) -> None:
        self._found: dict[str, list[LogLine]] = {}

    def take(self, line: LogLine) -> bool:
        version = line.text.partition(self.triggers[0])[2].split(maxsplit=1)[:1]
        if version and len(self._found) < VERSIONS_LIMIT:
            self._found.setdefault(version[0], []).append(line)
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        if len(self._found) != 2:
            return
        few, many = sorted(self._found.items(), key=lambda found: (len(found[1]), _number(found[0])))
        odd, other = few[1][0], many[1][0]
        if str(speaker(odd.shown)) + odd.source == str(speaker(other.shown)) + other.source:
            return  # one process after the other
        yield Signal(
            "nccl-version-mismatch",
            Says.STRONG,
            f"one process loads NCCL {few[0]}, another one of this job {many[0]}",
            [odd.evidence(), other.evidence()],
            speaker(odd.shown),
            order=min(odd.order, other.order),
            remedy="the same NCCL on all nodes, the one that torch pins: look for another libnccl.so.2 on LD_LIBRARY_PATH, LD_PRELOAD and VLLM_NCCL_SO_PATH of that process",
        )


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal() and len(part) < 6]
