"""NVLink is complete, the NVSwitch fabric is up, and multi-node NVLink has its channels.

With a link missing NCCL builds its rings without it and is slow. On NVSwitch machines nothing works until the fabric manager has
set the fabric up: CUDA then fails with error 802, `system not yet initialized`. Multi-node NVLink (GB200 and alike) also needs an IMEX
channel device in every container.

Source: nvidia-smi nvlink, fabric state in nvidia-smi -q -x; NVIDIA Fabric Manager and IMEX guides; /dev/nvidia-caps-imex-channels.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, Optional, TypedDict

from ncdiag import engine
from ncdiag.host import Host
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nccl.sysfs import names
from ncdiag.nccl.uneven import uneven
from ncdiag.nodeset import counted

NO_CLUSTER = ("00000000-0000-0000-0000-000000000000", "")


class Facts(TypedDict):
    manager: Optional[bool]  # nv-fabricmanager among the processes; None: no process can be seen
    imex: Optional[bool]  # nvidia-imex among the processes; None likewise
    channels: List[str]  # names in /dev/nvidia-caps-imex-channels


def collect(host: Host) -> Facts:
    found = engine.find(host)
    root = found.root if found else ""
    seen = [title for _, title in engine.processes(host)]
    alive = {"manager": "nv-fabricmanager", "imex": "nvidia-imex"}
    return {
        "manager": any(alive["manager"] in title for title in seen) if seen else None,
        "imex": any(alive["imex"] in title for title in seen) if seen else None,
        "channels": [
            name for name in names(host, f"{root}/dev/nvidia-caps-imex-channels") if name.startswith("channel")
        ],
    }


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    cliques: Dict[str, str] = {}
    for node, facts in snapshot.each("gpus"):
        gpus = facts["gpus"]
        if not gpus:
            yield skip("no GPU that could be asked", node, source="nvidia-smi")
            continue
        own = snapshot.facts(node, PROBE.id) or {"manager": None, "imex": None, "channels": []}
        problems = [*_links(node, gpus), *_fabric(snapshot, node, gpus, own), *_imex(snapshot, node, gpus, own)]
        yield from problems
        if not any(finding.status.severity > 1 for finding in problems):
            yield _fine(node, gpus)
        clusters = {f"{gpu['fabric_cluster']}/{gpu['fabric_clique']}" for gpu in gpus if _in_cluster(gpu)}
        if clusters:
            cliques[node] = ", ".join(sorted(clusters))
    yield from uneven(
        warn,
        cliques,
        "another NVLink domain or clique ({own}) than the other nodes ({others}): traffic to them takes the network",
        source="nvidia-smi -q -x (fabric)",
        cause="imex-unavailable",
        remedy="choose nodes of one NVLink domain, or accept the network between them",
    )


def _fine(node: str, gpus: List[Mapping[str, Any]]) -> Finding:
    by_links = Counter(_active(gpu) for gpu in gpus if gpu["nvlinks"] is not None)
    if not by_links:
        return unknown("NVLink was not told by the driver", node, source="nvidia-smi nvlink -s")
    if set(by_links) == {0}:
        return skip("these GPUs have no NVLink", node, source="nvidia-smi nvlink -s")
    text = ", ".join(f"{counted(times, 'GPU')} with {counted(count, 'link')}" for count, times in by_links.items())
    return ok(f"NVLink: {text}, all active, no errors", node, source="nvidia-smi nvlink -s -e")


def _active(gpu: Mapping[str, Any]) -> int:
    return sum(link["active"] for link in gpu["nvlinks"] or [])


def _links(node: str, gpus: List[Mapping[str, Any]]) -> Iterator[Finding]:
    told = [gpu for gpu in gpus if gpu["nvlinks"] is not None]
    usual = Counter(_active(gpu) for gpu in told).most_common(1)[0][0] if told else 0
    for gpu in told:
        name = f"GPU {gpu['index']} ({gpu['busid']})"
        active = _active(gpu)
        dark = [str(link["number"]) for link in gpu["nvlinks"] if not link["active"]]
        if active < usual:
            yield warn(
                f"{name}: {counted(active, 'NVLink')} active, {usual} on the others; inactive: {', '.join(dark) or 'not listed'}",
                node,
                source="nvidia-smi nvlink -s",
                device=gpu["busid"],
                observed=active,
                unit="NVLinks",
                expected=usual,
                cause="gpu-hardware-fault",
                remedy="drain the node; reset the GPU (or all, with NVSwitch); look for Xid 74 in the kernel log",
            )
        errors = sum(link["errors"] for link in gpu["nvlinks"])
        if errors:
            yield warn(
                f"{name}: {errors} NVLink replay, recovery or CRC errors",
                node,
                source="nvidia-smi nvlink -e",
                device=gpu["busid"],
                observed=errors,
                unit="errors",
                expected=0,
                cause="gpu-hardware-fault",
                remedy="watch whether they grow (nvidia-smi nvlink -e); if so drain the node and reseat or replace the board",
            )


def _fabric(snapshot: Snapshot, node: str, gpus: List[Mapping[str, Any]], own: Mapping[str, Any]) -> Iterator[Finding]:
    bad = [gpu for gpu in gpus if gpu["fabric_state"] and (gpu["fabric_state"] != "Completed" or _failed(gpu))]
    switches = [
        one
        for one in (snapshot.facts(node, "pci-devices") or {"functions": {}})["functions"].values()
        if one["kind"] == "nvswitch"
    ]
    if bad:
        state = f"{bad[0]['fabric_state']}, {bad[0]['fabric_status'] or 'no status'}"
        manager = {
            True: "nv-fabricmanager runs",
            False: "nv-fabricmanager does not run",
            None: "processes cannot be seen",
        }[own["manager"]]
        outside = any(_in_cluster(gpu) or _RACK.search(gpu["name"]) for gpu in gpus)
        made = fail if len(gpus) > 1 else warn  # a single GPU handed into a virtual machine works without
        yield made(
            f"the NVSwitch fabric is not up on {len(bad)} of {counted(len(gpus), 'GPU')}: {state}; "
            f"{'its manager runs on the switch trays' if outside else manager}",
            node,
            source="nvidia-smi -q -x (fabric)",
            observed=state,
            expected="Completed, Success",
            cause="fabric-manager-not-running",
            remedy=_ON_TRAYS if outside else _HERE,
        )
    elif (
        switches
        and own["manager"] is False
        and not _inside(snapshot, node)
        and not any(gpu["fabric_state"] == "Completed" for gpu in gpus)
    ):
        yield fail(
            f"{counted(len(switches), 'NVSwitch')} on the PCI bus, but nv-fabricmanager does not run",
            node,
            source="/proc/*/cmdline",
            observed=False,
            expected=True,
            cause="fabric-manager-not-running",
            remedy="systemctl enable --now nvidia-fabricmanager (the same version as the driver)",
        )


_RACK = re.compile(r"\bGB\d{3}\b")
"""GPUs whose NVSwitches stand in trays of their own."""
_HERE = "systemctl start nvidia-fabricmanager (the same version as the driver); see /var/log/fabricmanager.log"
_ON_TRAYS = (
    "see the fabric manager on the NVLink switch trays (nv show sdn, or NMX-C) and whether this node is in its partition; a node that "
    "joined after it has to be rebooted, or its GPUs reset"
)


def _inside(snapshot: Snapshot, node: str) -> bool:
    """In a container, where the host's processes are not seen."""
    return bool((snapshot.facts(node, "container") or {}).get("runtime"))


def _failed(gpu: Mapping[str, Any]) -> bool:
    return bool(gpu["fabric_status"]) and gpu["fabric_status"] != "Success"


def _in_cluster(gpu: Mapping[str, Any]) -> bool:
    return (gpu["fabric_cluster"] or "") not in NO_CLUSTER


def _imex(snapshot: Snapshot, node: str, gpus: List[Mapping[str, Any]], own: Mapping[str, Any]) -> Iterator[Finding]:
    """Only where the GPUs are part of an NVLink domain over several machines, and several nodes take part."""
    several = len(snapshot.nodes) > 1 or (snapshot.plan.nodes or 1) > 1
    if not several or not any(_in_cluster(gpu) for gpu in gpus):
        return
    if not own["channels"]:
        yield fail(
            "multi-node NVLink without an IMEX channel: NCCL cannot share memory with the other nodes",
            node,
            source="/dev/nvidia-caps-imex-channels",
            observed=[],
            expected="channel0",
            cause="imex-unavailable",
            remedy=(
                "start nvidia-imex on all nodes and create the channel (nvidia-modprobe -c 0, or the module option "
                "NVreg_CreateImexChannel0=1); in Kubernetes a ComputeDomain; or NCCL_MNNVL_ENABLE=0"
            ),
        )
    elif own["imex"] is False and not _inside(snapshot, node):
        yield warn(
            "an IMEX channel is there, but nvidia-imex is not seen among the processes",
            node,
            source="/proc/*/cmdline",
            observed=False,
            expected=True,
            cause="imex-unavailable",
            remedy="systemctl start nvidia-imex on all nodes; nvidia-imex-ctl -N shows who is connected (outside the container)",
        )


PROBE = Probe(
    "nvlink-fabric",
    "NVLink is complete and its fabric is up",
    judge,
    collect,
    needs=("gpus", "pci-devices", "container"),
)
