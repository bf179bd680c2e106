"""The kernel log holds no report of a broken GPU, link or NVSwitch.

The driver reports faults as Xid, the NVSwitch driver as SXid. A GPU that fell off the bus or a link that failed is named there minutes
before NCCL times out, and nowhere else. Reports that a program causes itself (illegal access) are told apart.

Source: the kernel log (dmesg); NVIDIA "Xid errors", NVSwitch SXid table; meanings in ncdiag/nccl/xid.py.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import xid

MAX_LINES = 200  # of the log, the last ones that are such reports


class Facts(TypedDict):
    xids: Optional[List[str]]  # lines of the kernel log with Xid or SXid; None: the log cannot be read
    why: Optional[str]  # why not


def collect(host: Host) -> Facts:
    try:
        output = host.run(["dmesg"], 5.0)
    except HostError as error:
        return {"xids": None, "why": str(error)}
    if output.rc != 0:
        return {"xids": None, "why": (output.err or output.out).strip()[:200] or f"dmesg ended with {output.rc}"}
    lines = [line for line in output.out.splitlines() if xid.parse(line)]
    return {"xids": lines[-MAX_LINES:], "why": None}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        gpus = snapshot.facts(node, "gpus") or {"gpus": [], "driver": None}
        if facts["xids"]:
            yield from _reports(node, facts["xids"])
        elif not gpus["gpus"] and gpus["driver"] is None:
            yield skip("no NVIDIA driver on this node", node, source="/proc/driver/nvidia/version")
        elif facts["xids"] is None:
            yield unknown(
                f"the kernel log cannot be read ({facts['why']}), so Xid reports are not known",
                node,
                source="dmesg",
                remedy="run as root, or: sudo dmesg | grep -i xid",
            )
        else:
            yield ok("no Xid and no SXid in the kernel log", node, source="dmesg")


def _reports(node: str, lines: List[str]) -> Iterator[Finding]:
    for event, times in xid.counted(xid.find(lines)).items():
        name = f"{'SXid' if event.switch else 'Xid'} {event.code}"
        text = f"{name} on {event.address}{f', {times} times' if times > 1 else ''}: {event.meaning}"
        if event.kind == "software":
            yield skip(f"{text} (a program's own fault, as a rule)", node, source="dmesg", device=event.address)
            continue
        cause = (
            "nvswitch-error"
            if event.switch
            else "gpu-ecc-row-remap"
            if event.kind == "memory"
            else "gpu-hardware-fault"
        )
        yield warn(
            text,
            node,
            source="dmesg",
            device=event.address,
            observed=event.text or name,
            cause=cause,
            remedy="see the report's time, it may be old; if not: drain the node, reset the GPU or reboot; if it comes back, replace the part",
        )


PROBE = Probe("gpu-xid", "The kernel log holds no report of a broken GPU", judge, collect, needs=("gpus",))
