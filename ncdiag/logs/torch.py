"""torch.distributed in logs: who timed out at which collective, who never got there, who waits for whom in the store, and CUDA's memory reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line, speaker
from ncdiag.nodeset import counted, ranks

_GROUP = re.compile(
    r"\[PG (?:ID )?(?P<id>\d+)(?: PG GUID (?P<guid>[^\s(]+)(?:\((?P<desc>[^)]*)\))?)? Rank (?P<rank>\d+)\]"
)
_ENQUEUED = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: (?P<completed>-?\d+)"
)
_TIMEOUT = re.compile(
    r"\[(?:PG [^\]]*)?Rank (?P<rank>\d+)\].{0,60}Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+), NumelIn=(?P<numel>\d+)"
)
_OOM = re.compile(
    r"out of memory\. Tried to allocate (?P<want>\d+(?:\.\d+)?) (?P<want_unit>[KMG]i?B)"
    r"(?:.*?capaci?ty (?:of )?(?P<total>\d+(?:\.\d+)?) (?P<total_unit>[KMG]i?B)|.{0,12}?; (?P<total2>\d+(?:\.\d+)?) (?P<total2_unit>[KMG]i?B) total capacity)?"
    r"(?:.*?of which (?P<free>\d+(?:\.\d+)?) (?P<free_unit>[KMG]i?B|bytes) is free)?"
    r"(?:.*?(?P<mine>\d+(?:\.\d+)?) (?P<mine_unit>[KMG]i?B) (?:is )?(?:allocated by PyTorch|already allocated))?"
    r"(?:.*?(?P<reserved>\d+(?:\.\d+)?) (?P<reserved_unit>[KMG]i?B) is reserved by PyTorch but unallocated|.*?(?P<whole>\d+(?:\.\d+)?) (?P<whole_unit>[KMG]i?B) reserved in total by PyTorch)?",
    re.S,
)
_OTHERS = re.compile(r"Process (\d+) has (\d+(?:\.\d+)?) ([KMG]i?B) memory in use")
_THIS = re.compile(r"[Tt]his process has (\d+(?:\.\d+)?) ([KMG]i?B) memory in use")
_FIRST_TOUCH = re.compile(r"_C\._(?:accelerator_setDeviceIndex|cuda_setDevice|cuda_init)\(")
"""Where torch makes a process's context on a GPU: nothing of the process is there yet."""
_NO_CONTEXT = re.compile(r"(?:CUDA|HIP) error: out of memory")
_TRACE_LINES = 8
"""From the call to the error below it; lines of other processes may stand between."""
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass
class _Rank:
    enqueued: int
    completed: int
    line: Line
    timed_out: bool = False


class Watchdog:
    """ProcessGroupNCCL's time-outs: the ranks that report one are waiting; the one that enqueued less than the others is the suspect."""

    triggers = ("ProcessGroupNCCL", "Watchdog caught", "ast enqueued")

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, _Rank]] = {}
        self._timeouts: dict[int, tuple[int, str, Line]] = {}

    @property
    def timeouts(self) -> dict[int, tuple[int, str, Line]]:
        """Rank -> sequence number and operation that it waited in until its time limit, and the line that says so."""
        return self._timeouts

    @property
    def heard(self) -> set[int]:
        """Ranks that told how many collectives they issued."""
        return {number for group in self._groups.values() for number in group}

    def take(self, line: Line) -> bool:
        text = line.text
        work, group = _ENQUEUED.search(text), _GROUP.search(text)
        if work:
            who = speaker(text).get("rank")
            rank = who if isinstance(who, int) else int(group["rank"]) if group else None
            if rank is not None:
                name = (group["guid"] or group["id"]) if group else "?"
                entry = _Rank(int(work["enqueued"]), int(work["completed"]), line, "Received a dump signal" not in text)
                self._groups.setdefault(name, {}).setdefault(rank, entry)
        timeout = _TIMEOUT.search(text)
        if timeout:
            self._timeouts.setdefault(int(timeout["rank"]), (int(timeout["seq"]), timeout["op"], line))
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        for name, found in self._groups.items():
            if len(found) < 2:
                continue
            most = max(rank.enqueued for rank in found.values())
            behind = {number: rank for number, rank in found.items() if rank.enqueued < most}
            waiting = [rank for rank in found.values() if rank.enqueued == most and rank.timed_out]
            if (
                behind
                and waiting
                and len(behind) * 2 <= len(found)
                and not all(rank.timed_out for rank in behind.values())
            ):
                least = min(rank.enqueued for rank in behind.values())
                evidence = [rank.line.evidence() for rank in [*behind.values(), *waiting][:8]]
                summary = (
                    f"rank {ranks(behind)} enqueued {counted(least, 'collective')} of group {name}, the others {most}: "
                    "they did something else, or are held up elsewhere"
                )
                yield Signal(
                    "collective-desync",
                    Says.STRONG,
                    summary,
                    evidence,
                    {"rank": ranks(behind)},
                    order=min(r.line.order for r in found.values()),
                )
                yield Signal(
                    "rank-stuck-outside-collective",
                    Says.HINT,
                    summary,
                    evidence[:3],
                    {"rank": ranks(behind)},
                    order=evidence[0].line or 0,
                )
        yield from self._different()

    def _different(self) -> Iterator[Signal]:
        """Ranks that timed out in different collectives at the same place of the sequence. A few among many are those that went another way."""
        at: dict[int, dict[str, dict[int, Line]]] = {}
        for rank, (seq, op, line) in self._timeouts.items():
            at.setdefault(seq, {}).setdefault(op, {})[rank] = line
        for seq, ops in at.items():
            if len(ops) > 1:
                most = max(ops, key=lambda op: len(ops[op]))
                few = [rank for op, lines in ops.items() if op != most for rank in lines]
                first = [next(iter(lines.values())) for lines in ops.values()]
                yield Signal(
                    "collective-desync",
                    Says.STRONG,
                    f"collective number {seq} is {' on some ranks and '.join(sorted(ops))} on others",
                    [line.evidence() for line in first],
                    {"rank": ranks(few)} if len(few) < len(ops[most]) else {},
                    order=min(line.order for line in first),
                )


class OutOfMemory:
    """CUDA's out-of-memory report: who holds the memory decides between three causes."""

    triggers = ("out of memory. Tried to allocate", "error: out of memory", "_C._accelerator_set", "_C._cuda_")

    def __init__(self) -> None:
        self._found: list[Signal] = []
        self._touched: dict[tuple[str, str], int] = {}
        """Source and who speaks there -> the last line that makes a context."""
        self.caught: Callable[[str, float], bool] = lambda source, order: False
        """Whether the run of a source went on after an order."""

    def take(self, line: Line) -> bool:
        match = _OOM.search(line.text)
        who = (line.source, str(speaker(line.shown)))
        if match and len(self._found) < 200:
            self._found.append(_judge(line, match))
        elif _FIRST_TOUCH.search(line.text):
            self._touched[who] = line.number
        elif _NO_CONTEXT.search(line.text) and line.number - self._touched.pop(who, -_TRACE_LINES) < _TRACE_LINES:
            self._found.append(_full_before(line))
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        for signal in self._found:
            if not self.caught(signal.evidence[0].source, signal.order):
                yield signal


def _bytes(match: re.Match[str], name: str) -> float | None:
    value = match[name]
    return float(value) * _UNITS[match[name + "_unit"]] if value is not None else None


def _full_before(line: Line) -> Signal:
    return Signal(
        "gpu-memory-occupied",
        Says.STRONG,
        "the GPU is full before this process has anything on it",
        [line.evidence()],
        speaker(line.shown),
        order=line.order,
    )


def _judge(line: Line, match: re.Match[str]) -> Signal:
    want, mine, reserved, total = (_bytes(match, name) for name in ("want", "mine", "reserved", "total"))
    free, whole, total = _bytes(match, "free"), _bytes(match, "whole"), total or _bytes(match, "total2")
    if whole is not None and mine is not None:
        reserved = whole - mine
    where = speaker(line.shown)
    others = [float(size) * _UNITS[unit] for _, size, unit in _OTHERS.findall(line.text)]
    this = _THIS.search(line.text)
    own = float(this[1]) * _UNITS[this[2]] if this else (mine or 0) + (reserved or 0)
    foreign = [size for size in others if this or mine is None or size < (mine or 0) or size > own * 1.15 + (2 << 30)]
    if total and foreign and sum(foreign) > max(0.25 * total, (free or 0)) and own < 0.7 * total:
        return Signal(
            "gpu-memory-occupied",
            Says.STRONG,
            f"other processes hold {sum(foreign) / (1 << 30):.1f} GiB of the GPU",
            [line.evidence()],
            where,
            order=line.order,
        )
    if reserved and want and reserved >= want and reserved > 0.05 * (total or reserved):
        return Signal(
            "gpu-memory-fragmented",
            Says.STRONG,
            f"{reserved / (1 << 30):.1f} GiB are reserved by torch but in pieces too small for {want / (1 << 30):.2f} GiB",
            [line.evidence()],
            where,
            order=line.order,
        )
    return Signal(
        "gpu-memory-exhausted",
        Says.STRONG,
        "the process itself fills the GPU",
        [line.evidence()],
        where,
        order=line.order,
    )
