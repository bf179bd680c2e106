"""NCCL RAS's text report (2.24 and later) in the shape of its JSON report. Travels to nodes.

The text folds equal communicators and lists single ranks only where they differ, so only communicators with a problem come out here, and of
those the ranks whose state or number of launched operations is told. The whole text is kept under `text`.
"""

from __future__ import annotations

import re
from typing import Any, Iterator

_COMMUNICATOR = re.compile(r"^#(?P<group>\d+)-(?P<index>\d+) \((?P<hash>[0-9a-fA-Fx:]+)\) (?P<problem>[A-Z]+)")
_LOCATION = re.compile(
    r"-- GPU (?P<gpu>\S+)(?: managed by process |, process )(?P<pid>\d+)(?: on node |, node )(?P<node>\S+)"
)
COUNTED = re.compile(
    r"(?P<number>\d+) ranks? ha(?:s|ve) (?:launched up to operation (?P<count>\d+)|not launched any operations)"
)
_STATUS_OF = re.compile(r"(?P<number>\d+) ranks? ha(?:s|ve) status (?P<status>\w+)")
_RANK = re.compile(r"^\s+Rank (?P<rank>\d+)\b(?P<rest>.*)")
LAUNCHED = re.compile(r"has launched up to operation (?P<count>\d+)|has not launched any operations")
_OPERATION = re.compile(r"different (?:collective|(?P<name>\w+)) operation counts")
_PROCESS = re.compile(r"^\s+Process (?P<pid>\d+) on node (?P<node>\S+)(?: managing GPUs? (?P<gpus>[\d,-]+))?")
ROW = re.compile(
    r"^\s*(?P<group>\d+)\s+(?P<comms>\d+)\s+(?P<nodes>\S+)\s+\S+\s+(?P<size>\S+)\s+(?P<total>\d+)\s+(?P<status>[A-Z,]+)\s+(?P<errors>[A-Z,]+)\s*$"
)
_STATES = {"INIT": 7, "RUNNING": 0, "FINALIZE": 0, "ABORT": 0}


def parse_text(text: str) -> dict[str, Any]:
    """`nccl_version`, `communicators` (those with problems), `groups` (rows of the table), `dead` and `silent` processes, `timeouts`, `text`."""
    version = re.search(r"NCCL version (\S+) compiled with CUDA (\S+)", text)
    report: dict[str, Any] = {
        "nccl_version": version.group(1) if version else None,
        "communicators": [],
        "groups": _groups(text),
        "dead": [],
        "silent": [],
        "timeouts": 0,
        "text": text,
    }
    sizes = {row["group"]: row["size"] for row in report["groups"]}
    for block in _blocks(text):
        head = _COMMUNICATOR.match(block[0])
        if head:
            _problem(report, head.group("hash"), sizes.get(int(head.group("group"))), head.group("problem"), block[1:])
        elif block[0].strip() in ("DEAD", "INCOMPLETE"):
            report["dead" if block[0].strip() == "DEAD" else "silent"].extend(_processes(block))
        elif block[0].strip() == "TIMEOUT":
            report["timeouts"] = sum(int(number) for number in re.findall(r"Encountered (\d+)", " ".join(block)))
    for communicator in report["communicators"]:
        _complete(communicator)
    report["communicators_count"] = sum(row["comms"] for row in report["groups"])
    return report


def _groups(text: str) -> list[dict[str, Any]]:
    rows = []
    for line in text.splitlines():
        match = ROW.match(line)
        if match:
            size = match.group("size").split("-")[-1]
            rows.append(
                {
                    "group": int(match.group("group")),
                    "comms": int(match.group("comms")),
                    "size": int(size) if size.isdecimal() else None,
                    "status": match.group("status").split(","),
                    "errors": match.group("errors").split(","),
                }
            )
    return rows


def _blocks(text: str) -> Iterator[list[str]]:
    """A line that starts a block (`#0-0 (hash) MISMATCH`, `DEAD` …) with the indented lines after it."""
    block: list[str] = []
    for line in text.splitlines():
        if line and not line[0].isspace():
            if block:
                yield block
            block = [line] if _COMMUNICATOR.match(line) or line.strip() in ("DEAD", "INCOMPLETE", "TIMEOUT") else []
        elif block and line.strip():
            block.append(line)
    if block:
        yield block


def _processes(block: list[str]) -> list[dict[str, Any]]:
    return [
        {"pid": int(match.group("pid")), "host": match.group("node"), "gpus": match.group("gpus")}
        for match in (_PROCESS.match(line) for line in block)
        if match
    ]


def _problem(report: dict[str, Any], name: str, size: int | None, problem: str, lines: list[str]) -> None:
    communicator = next((known for known in report["communicators"] if known["hash"] == name), None)
    if communicator is None:
        communicator = {"hash": name, "size": size, "ranks": [], "missing_ranks": [], "problems": [], "rest": {}}
        report["communicators"].append(communicator)
    communicator["problems"].append(problem)
    operation, group = "collective", None
    for line in lines:
        told = _OPERATION.search(line)
        if told:
            operation, group = told.group("name") or "collective", None
        rank = _RANK.match(line)
        if rank is None:
            group = _group(line) or group
            if group is not None and not told:
                _expect(communicator, operation, group)
        elif problem == "INCOMPLETE":
            communicator["missing_ranks"].append(_located(rank, {"unresponsive": True, "considered_dead": False}))
        else:
            _told(communicator, rank, operation, group)


def _group(line: str) -> dict[str, Any] | None:
    """`3 ranks have launched up to operation 64`, `2 ranks have status INIT`."""
    counted, status = COUNTED.search(line), _STATUS_OF.search(line)
    if counted:
        return {"number": int(counted.group("number")), "count": int(counted.group("count") or 0)}
    return {"number": int(status.group("number")), "status": status.group("status")} if status else None


def _expect(communicator: dict[str, Any], operation: str, group: dict[str, Any]) -> None:
    key = operation if "count" in group else "status"
    communicator["rest"].setdefault(key, []).append({**group, "named": 0})


def _located(rank: Any, status: dict[str, Any]) -> dict[str, Any]:
    where = _LOCATION.search(rank.group("rest"))
    return {
        "rank": int(rank.group("rank")),
        "host": where.group("node") if where else None,
        "pid": int(where.group("pid")) if where else None,
        "nvml_dev": int(where.group("gpu")) if where and where.group("gpu").isdecimal() else None,
        "status": status,
    }


def _rank_entry(communicator: dict[str, Any], rank: Any) -> dict[str, Any]:
    number = int(rank.group("rank"))
    known: list[dict[str, Any]] = communicator["ranks"]
    for entry in known:
        if entry["rank"] == number:
            return entry
    entry = dict(_located(rank, {"init_state": None, "async_error": None}), collective_counts={})
    known.append(entry)
    return entry


def _told(communicator: dict[str, Any], rank: Any, operation: str, group: dict[str, Any] | None) -> None:
    entry, rest = _rank_entry(communicator, rank), rank.group("rest")
    launched, status = LAUNCHED.search(rest), re.search(r"has status (\w+)", rest)
    reported = re.search(r"reported (.+?)(?: -- |$)", rest)
    if launched:
        entry["collective_counts"][operation] = int(launched.group(1) or 0)
    elif status:
        entry["status"].update(name=status.group(1), init_state=_STATES.get(status.group(1)))
    elif reported:
        entry["status"].update(async_error=reported.group(1))
    elif group is not None:
        expected = communicator["rest"]["status" if "status" in group else operation][-1]
        expected["named"] += 1
        if "status" in group:
            entry["status"].update(name=group["status"], init_state=_STATES.get(group["status"]))
        else:
            entry["collective_counts"][operation] = group["count"]


def _complete(communicator: dict[str, Any]) -> None:
    """`7 ranks have launched up to operation 64` without their names: the ranks that are named nowhere else, where their number fits."""
    for operation, groups in communicator.pop("rest").items():
        unnamed = [group for group in groups if not group["named"]]
        if operation == "status" or communicator["size"] is None or len(unnamed) != 1:
            continue
        known = {rank["rank"] for rank in communicator["ranks"] if operation in rank["collective_counts"]}
        known |= {rank["rank"] for rank in communicator["missing_ranks"]}
        others = [number for number in range(communicator["size"]) if number not in known]
        if len(others) != unnamed[0]["number"]:
            continue
        for number in others:
            entry = next((rank for rank in communicator["ranks"] if rank["rank"] == number), None)
            if entry is None:
                entry = {
                    "rank": number,
                    "host": None,
                    "pid": None,
                    "nvml_dev": None,
                    "status": {"init_state": None},
                    "collective_counts": {},
                }
                communicator["ranks"].append(entry)
            entry["collective_counts"][operation] = unnamed[0]["count"]
    communicator["ranks"].sort(key=lambda rank: rank["rank"])
    communicator["ranks_count"], communicator["missing_ranks_count"] = (
        len(communicator["ranks"]),
        len(communicator["missing_ranks"]),
    )
