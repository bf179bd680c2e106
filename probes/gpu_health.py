"""All GPUs of the node are there, and none is broken.

A GPU that fell off the bus, an uncorrected memory error, a row waiting to be remapped: the engine starts, or half of it, and dies
minutes later with `CUDA error` or a hang of the others. Compute mode, MIG and memory held by somebody else stop it at once.

Source: nvidia-smi -q -x; NVIDIA GPU debug guidelines; /sys/bus/pci/devices for what should be there. The kernel log is `gpu-xid`'s.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping

from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nccl.uneven import uneven
from ncdiag.nodeset import counted

NVIDIA = "0x10de"
HELD_MIB = 1024  # memory in use by others, from which an engine may not find what it wants

_SILENT = {
    r"device handle|is lost|requires reset|off the bus": (
        "gpu-hardware-fault",
        "one GPU answers no more, and nvidia-smi gives up: look for Xid 79 and NVRM lines in the kernel log; drain the node and "
        "power-cycle it",
    ),
    r"version mismatch": (
        "driver-library-missing",
        "kernel module and library of the driver are of two releases: reload the kernel modules or reboot; in a container: start "
        "it anew",
    ),
    r"No devices": (
        "driver-library-missing",
        "in a container: run it with the NVIDIA runtime (--gpus all); else look for RmInitAdapter and NVRM lines in the kernel log",
    ),
    r"NVML: Unknown Error": (
        "driver-library-missing",
        "a container that lost its devices (systemctl daemon-reload does that): start it anew; see /dev/nvidia* and its cgroup",
    ),
}
"""What nvidia-smi says when it cannot tell its GPUs -> cause, remedy."""
_SILENT_ELSE = (
    "driver-library-missing",
    "in a container: run it with the NVIDIA runtime (--gpus all); see nvidia-smi and the NVRM lines of the kernel log",
)

_TORCH_CUDA = re.compile(r"\+cu(\d{2})(\d)")


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    counts = {}
    for node, facts in snapshot.each("gpus"):
        on_bus = _on_bus(snapshot, node)
        if not facts["gpus"]:
            yield _none(node, facts, on_bus, snapshot.facts(node, "pci-devices") is not None)
            continue
        counts[node] = len(facts["gpus"])
        problems = [*_missing(snapshot, node, facts, on_bus), *_each(node, facts)]
        problems += _driver(snapshot, node, facts)
        yield from problems
        if not any(finding.status.severity > 2 for finding in problems):
            yield ok(
                f"{len(facts['gpus'])} x {_names(facts)}, driver {facts['driver']}", node, source="nvidia-smi -q -x"
            )
    yield from _too_few(snapshot, counts)
    yield from _unequal(snapshot, counts)


def _on_bus(snapshot: Snapshot, node: str) -> List[str]:
    functions = (snapshot.facts(node, "pci-devices") or {"functions": {}})["functions"]
    return sorted(address for address, one in functions.items() if one["kind"] == "gpu" and one["vendor"] == NVIDIA)


def _none(node: str, facts: Mapping[str, Any], on_bus: List[str], bus_read: bool) -> Finding:
    if not on_bus and not facts["hidden"] and not bus_read:
        return unknown(
            f"whether there is a GPU is not known: the PCI bus was not read, and {facts['why'] or 'nvidia-smi lists none'}",
            node,
            source="/sys/bus/pci/devices, nvidia-smi",
        )
    if not on_bus and not facts["hidden"]:
        return skip("no NVIDIA GPU on this node", node, source="/sys/bus/pci/devices")
    why = facts["why"] or "it lists none"
    if facts["driver"] is None:
        return fail(
            f"{counted(len(on_bus), 'NVIDIA GPU')} on the PCI bus ({', '.join(on_bus[:4])}), but no driver is loaded",
            node,
            source="/proc/driver/nvidia/version",
            observed=on_bus,
            cause="driver-library-missing",
            remedy="install or load the NVIDIA driver (modprobe nvidia); after a kernel update it may have to be rebuilt",
        )
    cause, remedy = next((told for words, told in _SILENT.items() if re.search(words, why)), _SILENT_ELSE)
    return fail(
        f"the driver {facts['driver']} is loaded, but its GPUs cannot be asked: {why}",
        node,
        source="nvidia-smi -q -x",
        observed=why,
        cause=cause,
        remedy=remedy,
    )


def _names(facts: Mapping[str, Any]) -> str:
    return ", ".join(sorted({gpu["name"] for gpu in facts["gpus"] if gpu["name"]}))


def _missing(snapshot: Snapshot, node: str, facts: Mapping[str, Any], on_bus: List[str]) -> Iterator[Finding]:
    known = {gpu["busid"] for gpu in facts["gpus"]}
    wanted = snapshot.plan.gpus_per_node
    if facts["hidden"]:
        yield fail(
            f"{', '.join(facts['hidden'])}: known to the driver, not listed by nvidia-smi",
            node,
            source="/proc/driver/nvidia/gpus",
            observed=sorted(known),
            cause="gpu-hardware-fault",
            remedy="look for Xid 79 in the kernel log; drain the node and power-cycle it",
        )
    elif set(on_bus) - known:
        lost = sorted(set(on_bus) - known)
        yield warn(
            f"{len(lost)} of {counted(len(on_bus), 'GPU')} of the PCI bus {'is' if len(lost) == 1 else 'are'} not seen by the driver: {', '.join(lost[:4])}",
            node,
            source="/sys/bus/pci/devices, nvidia-smi",
            observed=len(known),
            unit="GPUs",
            expected=len(on_bus),
            cause="gpu-hardware-fault",
            remedy="if this container was given fewer GPUs, all is well; else look for Xid 79 and NVRM lines in the kernel log",
        )
    if wanted is not None and len(known) < wanted:
        yield fail(
            f"{counted(len(known), 'GPU')}, the plan wants {wanted} a node",
            node,
            source="nvidia-smi",
            observed=len(known),
            unit="GPUs",
            expected=wanted,
            cause="visible-devices-conflict",
            remedy="see CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES and what the container or scheduler gave",
        )


def _each(node: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    for gpu in facts["gpus"]:
        lost = gpu.get("lost")
        if lost:
            remedy = "look for Xid 79 and NVRM lines in the kernel log; drain the node and reset the GPU or power-cycle the node"
            yield _made(fail, node, gpu, f"the driver says: {lost}", "gpu-hardware-fault", remedy, lost)
            continue
        yield from _memory_faults(node, gpu)
        yield from _modes(node, gpu)


def _made(made: Any, node: str, gpu: Mapping[str, Any], text: str, cause: str, remedy: str, observed: Any) -> Finding:
    found: Finding = made(
        f"GPU {gpu['index']} ({gpu['busid']}): {text}",
        node,
        source="nvidia-smi -q -x",
        device=gpu["busid"],
        observed=observed,
        unit="errors" if isinstance(observed, int) else "",
        cause=cause,
        remedy=remedy,
    )
    return found


def _memory_faults(node: str, gpu: Mapping[str, Any]) -> Iterator[Finding]:
    if gpu["ecc_uncorrected"]:
        text = f"{gpu['ecc_uncorrected']} uncorrected memory errors since the driver was loaded"
        yield _made(fail, node, gpu, text, "gpu-hardware-fault", "drain the node and reset the GPU; if they come back, replace it",
                    gpu["ecc_uncorrected"])  # fmt: skip
    if gpu["remap_failed"]:
        text = "memory rows could not be remapped: no spare rows are left"
        yield _made(fail, node, gpu, text, "gpu-hardware-fault", "replace the GPU", "remapping failed")
    elif gpu["remap_pending"]:
        text = "a row remap is pending"
        yield _made(
            warn, node, gpu, text, "gpu-ecc-row-remap", "drain the node and reset the GPU (nvidia-smi -r)", "pending"
        )
    if gpu["recovery"] and gpu["recovery"] != "None":
        text = f"the driver asks for: {gpu['recovery']}"
        yield _made(
            fail,
            node,
            gpu,
            text,
            "gpu-hardware-fault",
            "drain the node and do what the driver asks for",
            gpu["recovery"],
        )
    if gpu["ecc"] is False:
        text = "ECC is off"
        yield _made(
            warn, node, gpu, text, "gpu-hardware-fault", "nvidia-smi -e 1 and reboot, unless it is meant", "off"
        )


def _modes(node: str, gpu: Mapping[str, Any]) -> Iterator[Finding]:
    mode = gpu["compute_mode"]
    if mode and mode not in ("Default", "Exclusive_Process"):
        text = f"compute mode {mode}: no program can use it"
        yield _made(fail, node, gpu, text, "gpu-memory-occupied", f"nvidia-smi -i {gpu['index']} -c 0", mode)
    if gpu["mig"]:
        text = "MIG is on: it is divided, and NCCL does not join its parts"
        yield _made(
            warn,
            node,
            gpu,
            text,
            "visible-devices-conflict",
            f"nvidia-smi -i {gpu['index']} -mig 0, unless it is meant",
            "MIG",
        )
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    if used is not None and total and used > HELD_MIB:
        holders = ", ".join(f"{one['pid']} {one['name']} ({one['memory_mib']} MiB)" for one in gpu["processes"][:4])
        text = f"{used} of {total} MiB are in use by {holders or 'processes that are not visible here'}"
        yield _made(
            warn,
            node,
            gpu,
            text,
            "gpu-memory-occupied",
            "if this is no engine of yours, end those processes first",
            used,
        )


def _driver(snapshot: Snapshot, node: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """The engine's CUDA against the driver's: within one major version older drivers serve newer minor ones."""
    packages: Dict[str, str] = (snapshot.facts(node, "engine-versions") or {}).get("packages") or {}
    built = _TORCH_CUDA.search(packages.get("torch", ""))
    served = re.match(r"(\d+)\.(\d+)", facts["cuda"] or "")
    if built and served and int(built.group(1)) > int(served.group(1)):
        wanted = f"{built.group(1)}.{built.group(2)}"
        yield fail(
            f"torch is built for CUDA {wanted}, the driver {facts['driver']} serves {facts['cuda']}",
            node,
            source="nvidia-smi, torch's version",
            observed=facts["cuda"],
            expected=wanted,
            cause="driver-too-old",
            remedy="update the driver, or install the engine's build for the older CUDA",
        )


def _too_few(snapshot: Snapshot, counts: Dict[str, int]) -> Iterator[Finding]:
    """All nodes together against the plan's ranks; nothing where some node did not tell its GPUs."""
    ranks = snapshot.plan.ranks
    total = sum(counts.values())
    if ranks is not None and counts and len(counts) == len(snapshot.nodes) and total < ranks:
        yield fail(
            f"{counted(total, 'GPU')} on {counted(len(counts), 'node')}, the plan has {counted(ranks, 'rank')}",
            source="nvidia-smi",
            observed=total,
            unit="GPUs",
            expected=ranks,
            cause="rank-layout-wrong",
            remedy="add nodes, or lower --tensor-parallel-size, --pipeline-parallel-size or --data-parallel-size",
        )


def _unequal(snapshot: Snapshot, counts: Dict[str, int]) -> Iterator[Finding]:
    facts = {node: snapshot.facts(node, "gpus") for node in counts}
    equal_nodes = "use equal nodes for one engine, or bring this one to the state of the others"
    source = "nvidia-smi -q -x"
    text = "{own} GPUs here, {others} on the other nodes"
    yield from uneven(warn, counts, text, source=source, cause="rank-layout-wrong", remedy=equal_nodes)
    names = {node: _names(told) for node, told in facts.items()}
    text = "GPUs are {own} here, {others} on the other nodes"
    yield from uneven(warn, names, text, source=source, cause="rank-layout-wrong", remedy=equal_nodes)
    drivers = {node: told["driver"] for node, told in facts.items()}
    text = "driver {own} here, {others} on the other nodes"
    yield from uneven(warn, drivers, text, source=source, cause="version-mismatch", remedy=equal_nodes)


PROBE = Probe("gpu-health", "All GPUs are there and none is broken", judge, needs=("gpus", "pci-devices"))
