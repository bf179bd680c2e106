"""Which NICs NCCL gives to each GPU, channel by channel.

This is the rule for send and receive and for where the search for rings and trees starts; that search may take others.
Source: src/graph/topo.cc (ncclTopoGetLocal, ncclTopoGetLocalNet, ncclTopoGetLocalGpu) of v2.18.3-1 to v2.30.7-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional

from ncdiag.nccl.rules import Rules

if TYPE_CHECKING:
    from ncdiag.nccl.paths import Path, Paths


def best(row: Dict[int, Path], rules: Rules) -> List[int]:
    """The indexes with the highest bandwidth, and among them the nearest path type; empty if nothing is connected."""
    connected = {index: path for index, path in row.items() if path.gbytes_s > 0}
    if not connected:
        return []
    top = min((-path.gbytes_s, rules.rank(path.kind)) for path in connected.values())
    return [index for index, path in connected.items() if (-path.gbytes_s, rules.rank(path.kind)) == top]


def nets_of(paths: Paths, gpu: int) -> List[int]:
    """The NICs of one GPU in the order its channels take them, without repetition; empty without a NIC."""
    local = best(paths.gpu_net[gpu], paths.rules)
    if not local:
        return []
    if paths.rules.nets_by_mask:
        return _dealt(paths, gpu, local)
    sharing = best(paths.net_gpu[local[0]], paths.rules)
    count = _per_gpu(paths, len(local), max(1, len(sharing)))
    start = paths.system.gpu(gpu).dev or 0
    if paths.rules.start_by_local_gpus:
        start %= max(1, len(sharing))
    if len(local) & (len(local) - 1) == 0:
        start = _mirrored(start, len(local))
    return [local[(start + channel) % len(local)] for channel in range(count)]


def local_gpu(paths: Paths, net: int) -> Optional[int]:
    """The GPU that stands for a NIC when others go through it (PXN); None if no near GPU uses it."""
    sharing = best(paths.net_gpu[net], paths.rules)
    used = {gpu: nets_of(paths, gpu) for gpu in sharing}
    for channel in range(max((len(nets) for nets in used.values()), default=0)):
        for gpu, nets in used.items():
            if channel < len(nets) and nets[channel] == net:
                return gpu
    return None


def _per_gpu(paths: Paths, nets: int, gpus: int) -> int:
    policy = paths.settings.policy
    if paths.rules.version >= (2, 28, 0):
        if policy == "ALL":
            return nets
        if policy.startswith("MAX:") and policy[4:].isdecimal() and int(policy[4:]) > 0:
            return min(int(policy[4:]), nets)
    return -(-nets // gpus)


def _mirrored(value: int, size: int) -> int:
    """The low bits of `value` below `size` (a power of two), in reverse order."""
    mirrored, low, high = 0, 1, size >> 1
    while low < size:
        if value & low:
            mirrored |= high
        low <<= 1
        high >>= 1
    return mirrored


def _dealt(paths: Paths, gpu: int, local: List[int]) -> List[int]:
    """2.18.3: the common NICs are dealt round robin to the GPUs that have exactly the same ones."""
    same = [other for other in paths.gpus if best(paths.gpu_net[other], paths.rules) == local]
    place = same.index(gpu)
    taken: List[int] = []
    for turn in range(len(local)):
        net = local[(place + turn * len(same)) % len(local)]
        if net in taken:
            break
        taken.append(net)
    return taken
