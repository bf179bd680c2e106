"""A machine as a picture: its tree from CPU to devices, and beside it the way from each GPU to the NICs that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ncdiag.model import Finding, Status
from ncdiag.nodeset import counted, fold
from ncdiag.report.html.tracks import tracks
from ncdiag.report.plain import one_line
from ncdiag.report.result import Result
from ncdiag.report.topology import paths_in

MACHINES = 12
"""Different machines that are drawn; more are counted."""
ROWS = 300
"""Elements of one machine; a dump of more is cut, and says so."""
DEPTH = 12
ROW = 30
"""Units from one row to the next; units are pixels at full size."""
WIDTH = 360
BOX = 226
"""Right end of the boxes; to the right of it run the ways."""
INDENT = 14


class Row(NamedTuple):
    kind: str
    """cpu, switch, nvswitch, gpu, nic."""
    label: str
    detail: str
    busid: str
    depth: int
    slow: bool
    """The link was trained below what device and slot could do."""


def views(result: Result) -> Mapping[str, Any]:
    """`drawn` and how many are `left_out`."""
    drawn = []
    for machine in result.machines[:MACHINES]:
        try:
            drawn.append(_view(machine, result.findings))
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
            drawn.append({"broken": True, "name": one_line(machine.get("name", ""))})
    return {"drawn": drawn, "left_out": max(0, len(result.machines) - MACHINES)}


def _view(machine: Mapping[str, Any], findings: Sequence[Finding]) -> Mapping[str, Any]:
    rows = list(_rows(machine))
    nodes = [str(node) for node in machine.get("nodes") or [machine.get("name", "")]]
    faults = _faults(rows, machine, nodes, findings)
    place = {row.label: number for number, row in enumerate(rows) if row.kind in ("gpu", "nic")}
    uses = _uses(machine, place)
    version = str(machine.get("nccl_version", ""))
    rules = f"by the rules of NCCL {version}" + (", assumed" if machine.get("nccl_version_assumed") else "")
    origin = (
        "a topology dump"
        if machine.get("origin") == "dump"
        else "/sys/bus/pci/devices, /sys/class/infiniband and the GPU driver"
    )
    distances = [
        (one_line(gpu["label"]), [one_line(gpu["distance"].get(nic["label"], "")) for nic in machine["nics"]])
        for gpu in machine["gpus"]
    ]
    named = [f"{use['path']} {use['distance']} {use['why']}" for use in uses]
    return {
        "broken": False,
        "name": one_line(fold(nodes)),
        "count": len(nodes),
        "rows": [_drawn(row, number, faults[number]) for number, row in enumerate(rows[:ROWS])],
        "cut": max(0, len(rows) - ROWS),
        "elbows": _elbows(rows[:ROWS]),
        "ways": _ways([use for use in uses if use["from"] < ROWS and use["to"] < ROWS]),
        "width": WIDTH,
        "height": ROW * min(len(rows), ROWS) + 4,
        "uses": uses,
        "nics": [one_line(nic["label"]) for nic in machine["nics"]],
        "distances": distances,
        "legend": paths_in(" ".join([*named, *(kind for _, kinds in distances for kind in kinds)])),
        "unused": [one_line(name) for name in machine.get("unused_nics", [])],
        "unproven": sorted({one for use in uses for one in use["unproven"]}),
        "remarks": [str(remark) for remark in machine.get("remarks", [])],
        "faults": [
            {"label": rows[number].label, "status": fault.status.value, "text": fault.summary}
            for number, found in enumerate(faults)
            for fault in found
        ],
        "source": f"{origin}, {rules}",
        "summary": _summary(machine, uses),
    }


def _rows(machine: Mapping[str, Any]) -> Iterator[Row]:
    gpus = {gpu["label"]: gpu for gpu in machine["gpus"]}
    nics = {nic["label"]: nic for nic in machine["nics"]}
    for cpu in machine["tree"]:
        yield Row("cpu", "CPU" if cpu["numa"] < 0 else f"CPU, NUMA node {cpu['numa']}", "", "", 0, False)
        for pci in cpu["pci"]:
            yield from _pci_rows(pci, 1, gpus, nics)
        for label in cpu["nets"]:
            yield Row("nic", one_line(label), "virtual", "", 1, False)


def _pci_rows(pci: Mapping[str, Any], depth: int, gpus: Mapping[str, Any], nics: Mapping[str, Any]) -> Iterator[Row]:
    slow = pci["link"] != pci["link_max"]
    link = one_line(pci["link"] + (f" of {pci['link_max']}" if slow else ""))
    busid, level = one_line(pci["busid"]), min(depth, DEPTH)
    for label in pci["gpus"]:
        links = gpus.get(label, {}).get("nvlinks") or 0
        yield Row("gpu", one_line(label), link + (f", {counted(links, 'NVLink')}" if links else ""), busid, level, slow)
    for label in pci["nets"]:
        speed = nics.get(label, {}).get("speed_gbits_s")
        yield Row("nic", one_line(label), f"{speed:g} Gb/s" if speed else link, busid, level, slow)
    if not pci["gpus"] and not pci["nets"]:
        kind = "nvswitch" if pci["kind"] == "nvswitch" else "switch"
        yield Row(kind, "NVSwitch" if kind == "nvswitch" else "Switch", link, busid, level, slow)
    for child in pci["pci"]:
        yield from _pci_rows(child, depth + 1, gpus, nics)


def _drawn(row: Row, number: int, faults: Sequence[Finding]) -> Mapping[str, Any]:
    left = row.depth * INDENT
    worst = max((fault.status for fault in faults), key=lambda status: status.severity, default=None)
    return {
        "kind": row.kind,
        "label": row.label,
        "detail": row.detail,
        "x": left,
        "y": number * ROW + 2,
        "w": BOX - left,
        "fault": "" if worst is None else worst.value,
        "slow": row.slow,
        "title": f"{row.label} {row.busid} {row.detail}".strip()
        + "".join(f"; {fault.status.value}: {fault.summary}" for fault in faults),
    }


def _elbows(rows: Sequence[Row]) -> list[str]:
    """Lines from each element down to those below it."""
    paths, last = [], {}
    for number, row in enumerate(rows):
        last[row.depth] = number
        above = last.get(row.depth - 1)
        if row.depth and above is not None:
            x, top, middle = (row.depth - 1) * INDENT + 7, above * ROW + ROW - 2, number * ROW + ROW // 2
            paths.append(f"M{x} {top}V{middle}H{row.depth * INDENT}")
    return paths


def _uses(machine: Mapping[str, Any], place: Mapping[str, int]) -> list[Mapping[str, Any]]:
    """One a GPU and NIC that its channels take."""
    uses: list[Mapping[str, Any]] = []
    for gpu in machine["gpus"]:
        for label in gpu["nics"]:
            direct = gpu.get("gpudirect", {}).get(label) or {}
            receive, send = bool(direct.get("receive")), bool(direct.get("send"))
            both = "yes" if receive and send else "receive only" if receive else "send only" if send else "no"
            if one_line(gpu["label"]) in place and one_line(label) in place:
                uses.append(
                    {
                        "gpu": one_line(gpu["label"]),
                        "nic": one_line(label),
                        "path": one_line(gpu["path"].get(label, "?")),
                        "distance": one_line(gpu["distance"].get(label, "?")),
                        "gdr": both,
                        "status": "ok" if both == "yes" else "warn",
                        "why": "; ".join(map(str, direct.get("reasons", []))),
                        "unproven": [str(one) for one in direct.get("unproven", [])],
                        "from": place[one_line(gpu["label"])],
                        "to": place[one_line(label)],
                    }
                )
    return uses


def _ways(uses: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The ways as lines that do not cover each other: each on a track of its own where they run side by side."""
    chosen = tracks([(min(use["from"], use["to"]), max(use["from"], use["to"])) for use in uses])
    step = min(12.0, (WIDTH - BOX - 48) / max([*chosen, 1]))
    ways: list[Mapping[str, Any]] = []
    for use, track in zip(uses, chosen, strict=True):
        start, end = use["from"] * ROW + ROW / 2 + 2, use["to"] * ROW + ROW / 2 - 3
        x = BOX + 40 + track * step
        bend = 4 if end > start else -4
        ways.append(
            {
                **use,
                "d": f"M{BOX} {start:.1f}H{x - 4:.1f}Q{x:.1f} {start:.1f} {x:.1f} {start + bend:.1f}V{end - bend:.1f}Q{x:.1f} {end:.1f} {x - 4:.1f} {end:.1f}H{BOX + 6}",
                "tip": f"M{BOX} {end:.1f}l7 -3.5v7z",
                "x": BOX + 5,
                "y": f"{start - 3:.1f}",
            }
        )
    return ways


def _faults(
    rows: Sequence[Row], machine: Mapping[str, Any], nodes: Sequence[str], findings: Sequence[Finding]
) -> list[list[Finding]]:
    """The findings about each row: of a node drawn here, and about this device by its name or PCI address."""
    names = set(nodes)
    about: dict[str, list[Finding]] = {}
    for finding in findings:
        device = str(finding.where.get("device", "")).lower()
        if device and finding.status in (Status.FAIL, Status.WARN) and str(finding.where.get("node", "")) in names:
            known = about.setdefault(device.partition(":")[0] if device.count(":") == 1 else device, [])
            if all(one.summary != finding.summary for one in known) and len(known) < 8:
                known.append(finding)
    return [
        []
        if row.kind == "cpu"
        else [*about.get(row.label.lower(), []), *(about.get(row.busid.lower(), []) if row.busid else [])]
        for row in rows
    ]


def _summary(machine: Mapping[str, Any], uses: Sequence[Mapping[str, Any]]) -> str:
    """The picture in words, for who cannot see it."""
    direct = sum(use["gdr"] == "yes" for use in uses)
    text = f"{counted(len(machine['gpus']), 'GPU')} and {counted(len(machine['nics']), 'NIC')}."
    if uses:
        text += f" {direct} of {counted(len(uses), 'way')} from a GPU to a NIC that it takes {'uses' if direct == 1 else 'use'} GPUDirect RDMA both ways."
    return text
