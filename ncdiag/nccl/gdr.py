"""Whether NCCL uses GPUDirect RDMA between one GPU and one NIC, and if not, why.

Source: src/graph/paths.cc (ncclTopoCheckGdr) of v2.18.3-1 to v2.30.7-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, NamedTuple

if TYPE_CHECKING:
    from ncdiag.nccl.paths import Paths


class Decision(NamedTuple):
    """`receive`: the NIC writes into GPU memory; `send`: it reads from it."""

    receive: bool
    send: bool
    distance: str  # the path type that counts: with PXN that of the GPU in between
    level: str  # the farthest path type that is allowed
    reasons: List[str]  # why one or both are off; empty when both are on
    unproven: List[str]  # what the source could not tell and was taken as given


def level(paths: Paths) -> str:
    """NCCL_NET_GDR_LEVEL, or the version's default."""
    rules, settings = paths.rules, paths.settings
    if settings.gdr_level:
        return settings.gdr_level
    return rules.gdr_level if rules.gdr_level == "PXB" or settings.gdr_c2c_on(rules) else "PXB"


def decide(paths: Paths, gpu: int, net: int) -> Decision:
    rules = paths.rules
    via = paths.gpu_net[gpu][net].via
    near_gpu = gpu if via is None else via
    distance = paths.nearest[near_gpu][net].kind
    allowed = level(paths)
    card, nic = paths.system.gpu(gpu), paths.system.net(net)
    reasons, unproven = [], []
    if nic.gdr is False:
        reasons.append(f"{nic.name} reports no GPUDirect (no nvidia_peermem and no DMA-BUF, or the plugin has none)")
    elif nic.gdr is None:
        unproven.append("driver and kernel allow GPUDirect")
    if card.gdr is False:
        reasons.append(f"{card.label} does not support GPUDirect RDMA")
    elif card.gdr is None:
        unproven.append("the GPUs support GPUDirect RDMA")
    counted = _as_counted(paths, near_gpu, distance)
    if not rules.within(counted, allowed):
        how = "set by NCCL_NET_GDR_LEVEL" if paths.settings.gdr_level else "the default"
        reasons.append(f"distance {distance} is farther than {allowed}, {how}")
    receive = not reasons
    send = receive and _sends(paths, gpu)
    if receive and not send:
        reasons.append("only for receiving: " + _why_not_send(paths, gpu))
    return Decision(receive, send, distance, allowed, reasons, unproven)


def _as_counted(paths: Paths, gpu: int, distance: str) -> str:
    """Up to 2.28 a path by C2C and host bridge is taken as C2C when NCCL_NET_GDR_C2C is on."""
    rules = paths.rules
    if rules.gdr_c2c != "as-c2c" or not paths.settings.gdr_c2c_on(rules):
        return distance
    cpu = paths.local_cpu(gpu)
    if distance == "P2C" or (distance == "PHB" and cpu is not None and paths.gpu_cpu[gpu][cpu].kind == "C2C"):
        return "C2C"
    return distance


def _sends(paths: Paths, gpu: int) -> bool:
    read = paths.settings.gdr_read
    if read is not None and read >= 0:
        return read != 0
    sm = paths.system.gpu(gpu).sm
    if paths.rules.ampere_sends and (sm is None or sm >= 80):
        return True
    return paths.nvlink_peer(gpu)


def _why_not_send(paths: Paths, gpu: int) -> str:
    if paths.settings.gdr_read == 0:
        return "NCCL_NET_GDR_READ=0"
    if paths.rules.ampere_sends:
        return f"sm {paths.system.gpu(gpu).sm} without NVLink to another GPU"
    return "without NVLink to another GPU (this version asks it of every GPU)"
