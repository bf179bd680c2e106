"""Reads what other tools measured: nccl-tests' tables, perftest (ib_write_bw and its kin), and NCCL's own diagnostics in a log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.bandwidth.sweep import Row, bus_factor
from ncdiag.nccl.log import NcclLog

_TYPES = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}
_PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv|broadcast|reduce)_perf\b")
_OPS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
_DEVICE = re.compile(r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)", re.M)
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+(.+)$", re.M)
_PERFTEST = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+(?:\.\d+)?)\s+(\d+(?:\.\d+)?)\s+(\d+(?:\.\d+)?)\s*$", re.M)
_DIAG_BW = re.compile(r"(?:net bw|bw):?.*?(\d+(?:\.\d+)?)\s*Gbit/s", re.I)


@dataclass
class Results:
    """What a file holds."""

    tool: str
    rows: list[Row] = field(default_factory=list)
    ranks: list[tuple[int, str, int]] = field(default_factory=list)
    """(rank, host, device) of nccl-tests."""
    perftest: dict[str, Any] = field(default_factory=dict)
    diagnostics: list[dict[str, Any]] = field(default_factory=list)


def read(text: str, name: str) -> Results:
    """Raises ValueError when the file is of none of the kinds."""
    if "out-of-place" in text and "algbw" in text:
        return nccl_tests(text)
    if "BW average" in text or "BW_average" in text:
        return perftest(text)
    found = diagnostics(text, name)
    if found.diagnostics:
        return found
    raise ValueError(
        f"{name}: neither nccl-tests' table, nor perftest's, nor NCCL diagnostics (NCCL_RUN_DIAGNOSTICS=1, NCCL 2.31 or newer)"
    )


def nccl_tests(text: str) -> Results:
    """The table of one nccl-tests program. With several ranks unknown (cut header) two are assumed where busbw and algbw do not say."""
    program = _PROGRAM.search(text)
    op = _OPS.get(program.group(1), program.group(1)) if program else "all_reduce"
    found = Results(
        "nccl-tests", ranks=[(int(rank), host, int(device)) for rank, host, device in _DEVICE.findall(text)]
    )
    for size, count, kind, _, _, rest in _ROW.findall(text):
        words = rest.split()
        per_half = len(words) // 2
        if per_half < 4 or kind not in _TYPES:
            continue
        for in_place in (False, True):
            half = words[per_half * in_place : per_half * (in_place + 1)]
            row = _row(op, int(size), int(count), _TYPES[kind], in_place, half, len(found.ranks))
            if row is not None:
                found.rows.append(row)
    return found


def _row(op: str, size: int, count: int, dtype: str, in_place: bool, half: Sequence[str], ranks: int) -> Row | None:
    try:
        time_s, algbw, busbw = float(half[0]) / 1e6, float(half[1]), float(half[2])
    except ValueError:
        return None
    if not ranks and op == "all_reduce" and algbw:
        ratio = busbw / algbw
        ranks = round(2 / (2 - ratio)) if ratio < 1.999 else 2
    wrong = None if half[3] == "N/A" else int(float(half[3]))
    extra = [float(value) / 1e6 for value in half[4:7]] if len(half) >= 7 else []
    least, most, p99 = (extra[0], extra[1], extra[2]) if extra else (time_s, time_s, time_s)
    return Row(op, size, count, dtype, in_place, ranks or 2, time_s, None, least, time_s, p99 or most, 0.0, 0, 0, wrong)


def perftest(text: str) -> Results:
    """`rows`: size, iterations, peak, average (GB/s) and million messages a second; with what the header says of device, link and MTU."""
    header = dict(re.findall(r"([A-Z][\w -]*?)\s*: (\S+)", text))
    unit = (
        0.125
        if re.search(r"BW average\[Gb/sec\]", text)
        else 1 / 1e9 * (1 << 20)
        if "MB/sec" in text or "MiB/sec" in text
        else 1e-3
    )
    rows = [
        {
            "size_bytes": int(size),
            "iterations": int(count),
            "peak_gbytes_s": float(peak) * unit,
            "average_gbytes_s": float(average) * unit,
            "mpps": float(rate),
        }
        for size, count, peak, average, rate in _PERFTEST.findall(text)
    ]
    wanted = ("Device", "Link type", "Mtu", "GID index", "Transport type", "Number of qps")
    test = re.search(r"\b(?:RDMA_Write|RDMA_Read|Send)\b[^\n]*?(?:BW|Latency) Test|\bib_\w+_bw\b", text)
    return Results(
        "perftest",
        perftest={
            "test": test.group(0).strip() if test else "",
            **{key: header[key] for key in wanted if key in header},
            "rows": rows,
        },
    )


def diagnostics(text: str, name: str) -> Results:
    """NCCL's `DIAG` lines with host and rank; a bandwidth in Gbit/s is read out of those that have one."""
    parser = NcclLog()
    parser.feed(name, text.encode())
    found = Results("nccl-diagnostics")
    for event in parser.finish().events:
        if event.kind == "diagnostics":
            rate = _DIAG_BW.search(event.message)
            found.diagnostics.append(
                {
                    "host": event.host,
                    "rank": event.rank,
                    "line": event.at.line,
                    "text": event.message,
                    "ok": "[OK]" in event.message or not re.search(r"\[(?:FAIL|ERROR|WARN)", event.message),
                    "gbytes_s": float(rate.group(1)) / 8 if rate else None,
                }
            )
    return found


def factor(row: Row) -> float:
    """busbw over algbw of a row that was read."""
    return bus_factor(row.op, row.ranks)
