"""PyTorch flight-recorder dumps: finds them where a process leaves them, reads them without running anything, compares them over ranks.

Format and traps: torch 2.5 to 2.14, FlightRecorder.cpp and distributed/flight_recorder. Entries match by group name and collective_seq_id;
`pg_id` differs between ranks. `state` is not used: without event timing a running collective reads `scheduled`, and gloo's stay so for ever.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import re
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LIMIT = 256 << 20
WAITED_S = 10.0
"""How long a rank has to have waited in a collective, as its dump was written, before others count as behind. Ranks write their dumps one after
the other, seconds apart and some seconds after they looked (0.5 to 6 s on 8 H200 ranks): a job that works goes on meanwhile."""
PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_DEFAULTS = (
    "/tmp/nccl_trace_rank_",
    "{cache}/torch/nccl_trace_rank_",
    "{cache}/torch/comm_lib_trace_rank_",
    "{home}/.cache/torch/nccl_trace_rank_",
    "{home}/.cache/torch/comm_lib_trace_rank_",
)


class DumpError(Exception):
    """A file that is no flight-recorder dump; the text says why."""


class _Plain(pickle.Unpickler):
    """Builds dict, list, tuple, str, int, float, bool and None; refuses everything that has to be imported."""

    def find_class(self, module: str, name: str) -> Any:
        raise DumpError(f"it wants to load {module}.{name}; a flight-recorder dump holds plain data only")

    def persistent_load(self, pid: Any) -> Any:
        raise DumpError("it refers to data outside the file; a flight-recorder dump does not")


def parse(raw: bytes) -> dict[str, Any]:
    """A dump in JSON or pickle form. Raises DumpError."""
    try:
        data = json.loads(raw) if raw.lstrip()[:1] == b"{" else _Plain(io.BytesIO(raw)).load()
    except DumpError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DumpError(f"damaged ({type(error).__name__}: {error})") from None
    if (
        not isinstance(data, dict)
        or "version" not in data
        or not any(key in data for key in ("entries", "pg_config", "pg_status"))
    ):
        raise DumpError("it has no version, entries and pg_config")
    entries = data.setdefault("entries", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DumpError("its entries are no list of records")
    return data


def read(path: str) -> dict[str, Any]:
    """The dump in a file, with `written_s` besides: when the file was written, seconds since 1970. Raises DumpError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise DumpError(f"{path} is no regular file")
            raw = file.read(LIMIT + 1)
    except OSError as error:
        raise DumpError(f"{path}: {error.strerror}") from None
    if len(raw) > LIMIT:
        raise DumpError(f"{path} is larger than {LIMIT >> 20} MiB")
    try:
        return {**parse(raw), "written_s": facts.st_mtime}
    except DumpError as error:
        raise DumpError(f"{path}: {error}") from None


def candidates(environ: Mapping[str, str], rank: int, root: str = "") -> list[str]:
    """Where a process of global rank `rank` may leave its dump, most telling first. `root`: what stands before its paths, `/proc/PID/root`."""
    named = [environ[name] for name in PREFIX_VARIABLES if environ.get(name)]
    home = environ.get("HOME", "/root")
    defaults = [place.format(home=home, cache=environ.get("XDG_CACHE_HOME") or home + "/.cache") for place in _DEFAULTS]
    return [f"{root}{prefix}{rank}" for prefix in dict.fromkeys([*named, *defaults]) if prefix.startswith("/")]


def find(environ: Mapping[str, str], rank: int, root: str = "", *, since: float = 0.0) -> str | None:
    """The newest dump of a process, written after `since` (seconds since 1970): one of an earlier run says nothing."""
    found = []
    for path in candidates(environ, rank, root):
        try:
            facts = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(facts.st_mode) and facts.st_mtime >= since:
            found.append((facts.st_mtime, path))
    return max(found)[1] if found else None


def request(environ: Mapping[str, str], rank: int, root: str = "") -> str | None:
    """Asks a process that was started with TORCH_NCCL_DEBUG_INFO_PIPE_FILE for a dump; None when asked, else why it was not."""
    prefix = environ.get(PIPE_VARIABLE)
    if not prefix:
        return f"rank {rank} has no flight-recorder pipe: {PIPE_VARIABLE} was not set when it started"
    path = f"{root}{prefix}{rank}.pipe"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"{path}: {'nobody reads it' if error.errno == errno.ENXIO else error.strerror}"
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return f"{path} is no pipe"
        os.write(descriptor, b"1\n")
    except OSError as error:
        return f"{path}: {error.strerror}"
    finally:
        os.close(descriptor)
    return None


@dataclass
class GroupReport:
    """One process group over all ranks whose dumps are there."""

    name: str
    """Name and, where there is one, description: `0 (default_pg)`."""
    members: list[int]
    """Global ranks of the group; empty where the dumps do not say."""
    last: dict[int, int] = field(default_factory=dict)
    """Rank -> highest collective sequence number that it issued."""
    operations: dict[int, str] = field(default_factory=dict)
    """Rank -> that collective, `all_reduce [4096]`."""
    behind: list[int] = field(default_factory=list)
    """Ranks that issued fewer collectives than the others."""
    mismatch: str = ""
    """The first sequence number at which ranks disagree on operation, sizes or types, in words; empty when they agree."""
    odd: list[int] = field(default_factory=list)
    """The minority there; empty where there is none (two ranks that differ)."""
    absent: list[int] = field(default_factory=list)
    """Members without a dump."""


def compare(dumps: Mapping[int, Mapping[str, Any]]) -> list[GroupReport]:
    """What the dumps of several ranks say of each group: who is behind, and where they first issue different collectives."""
    issued: dict[str, dict[int, dict[int, Mapping[str, Any]]]] = {}
    members: dict[str, list[int]] = {}
    for rank, dump in dumps.items():
        for name, config in _groups(dump):
            members.setdefault(name, _ranks(config) or [])
        for entry in dump.get("entries") or ():
            sequence = entry.get("collective_seq_id")
            if isinstance(sequence, int) and not entry.get("is_p2p"):
                issued.setdefault(_name(entry), {}).setdefault(rank, {})[sequence] = entry
    return [_report(name, members.get(name.split(" (")[0], []), issued[name], dumps) for name in sorted(issued)]


def _groups(dump: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    config = dump.get("pg_config")
    for name, value in config.items() if isinstance(config, Mapping) else ():
        if isinstance(value, Mapping):
            yield str(value.get("name") or name or "0"), value


def _ranks(config: Mapping[str, Any]) -> list[int]:
    """`"[0, 1]"`: the ranks of a group are written as text."""
    return [int(number) for number in re.findall(r"\d+", str(config.get("ranks", "")))]


def _name(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        description = str(group[1]) if len(group) > 1 and group[1] not in ("", "undefined", None) else ""
        return f"{group[0]} ({description})" if description else str(group[0])
    return str(entry.get("pg_id", "0"))


def _operation(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("profiling_name") or "collective").rpartition(":")[2]
    sizes = entry.get("input_sizes")
    return f"{name} {sizes[0] if isinstance(sizes, (list, tuple)) and len(sizes) == 1 else sizes}" if sizes else name


# Collectives whose sizes may differ between ranks without being wrong.
_UNEVEN = re.compile(r"all_?to_?all|gather|scatter|coalesced|broadcast_oop|barrier", re.I)


def _signature(entry: Mapping[str, Any]) -> str:
    shown = _operation(entry)
    name = shown.split(" ")[0]
    return name if _UNEVEN.search(name) else f"{shown} {entry.get('input_dtypes') or ''}".strip()


def _went_on(
    rank: int, lasts: Mapping[int, int], issued: Mapping[int, Mapping[int, Mapping[str, Any]]], dumps: Mapping[int, Any]
) -> bool:
    """Whether a rank may be no further only because its dump was made earlier: nobody had waited for it long. False where times are not known."""
    last = lasts[rank]
    for other, entries in issued.items():
        if lasts[other] <= last:
            continue
        entry = entries.get(last + 1) or entries[min(sequence for sequence in entries if sequence > last)]
        created = entry.get("time_created_ns")
        written = [dumps[number].get("written_s") for number in (rank, other)]
        if not isinstance(created, int) or not all(isinstance(seconds, (int, float)) for seconds in written):
            return False
        if min(written) - created / 1e9 >= WAITED_S:
            return False
    return True


def _report(
    name: str, members: list[int], issued: Mapping[int, Mapping[int, Mapping[str, Any]]], dumps: Mapping[int, Any]
) -> GroupReport:
    report = GroupReport(name, members)
    for rank in sorted(issued):
        report.last[rank] = max(issued[rank])
        report.operations[rank] = _operation(issued[rank][report.last[rank]])
    for rank in members:
        if rank in dumps and rank not in issued:
            report.last[rank], report.operations[rank] = 0, "nothing"
    highest = max(report.last.values())
    report.behind = sorted(
        rank for rank, last in report.last.items() if last < highest and not _went_on(rank, report.last, issued, dumps)
    )
    report.absent = sorted(rank for rank in members if rank not in dumps)
    common = set.intersection(*(set(entries) for entries in issued.values()))
    for sequence in sorted(common):
        seen = {rank: _signature(entries[sequence]) for rank, entries in issued.items()}
        votes = Counter(seen.values()).most_common()
        if len(votes) > 1:
            report.mismatch = f"collective {sequence}: " + ", ".join(
                f"{shown} on rank{'s' if number > 1 else ''} {', '.join(str(rank) for rank in sorted(seen) if seen[rank] == shown)}"
                for shown, number in votes
            )
            if votes[0][1] > votes[1][1]:
                report.odd = sorted(rank for rank, shown in seen.items() if shown != votes[0][0])
            break
    return report
