"""GPUs by name: memory, and how many share one NVLink (or xGMI) domain; and what `--gpus` means.

memory_mib is the total that nvidia-smi (rocm-smi) shows for the part, which is the marketing size less what ECC and
the driver keep; `usable_bytes` takes off what CUDA itself holds back, so that it is what vLLM calls total memory.
Sources: vendor data sheets for sizes and links; totals as printed by `nvidia-smi -q`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncdiag.suggest import did_you_mean

MIB = 2**20
SERVER = 8  # GPUs in the largest usual server: a larger domain is a rack's and spans nodes
CUDA_HELD_MIB = 500  # nvidia-smi total less torch's total_memory: H100 81559 - 81100, RTX 4090 24564 - 24084 MiB


class GpuError(ValueError):
    """`--gpus` cannot be read: one sentence with the way out."""


@dataclass(frozen=True)
class Gpu:
    """One GPU model."""

    name: str
    memory_mib: int
    domain: int  # GPUs joined by NVLink or xGMI in the usual server; 1: PCIe only
    fp8: bool  # tensor cores for FP8
    batched_tokens: int  # vLLM's default --max-num-batched-tokens for a server on it

    @property
    def usable_bytes(self) -> int:
        return (self.memory_mib - CUDA_HELD_MIB) * MIB


def _gpu(name: str, memory_mib: int, domain: int, fp8: bool = True) -> Gpu:
    """vLLM's default batch: 8192 tokens from 70 GiB (not A100), 2048 below. Source: engine/arg_utils.py."""
    large = memory_mib * MIB >= 70 * 2**30 and not name.startswith("A100")
    return Gpu(name, memory_mib, domain, fp8, 8192 if large else 2048)


GPUS: Mapping[str, Gpu] = {
    gpu.name.lower(): gpu
    for gpu in (
        _gpu("H100", 81559, 8),
        _gpu("H100-PCIE", 81559, 1),
        _gpu("H100-NVL", 95830, 2),
        _gpu("H800", 81559, 8),
        _gpu("H200", 143771, 8),
        _gpu("H200-NVL", 143771, 4),
        _gpu("H20", 97871, 8),
        _gpu("GH200", 97871, 1),
        _gpu("B200", 183359, 8),
        _gpu("B300", 275040, 8),
        _gpu("GB200", 189471, 72),
        _gpu("GB300", 284208, 72),
        _gpu("A100", 81920, 8, False),
        _gpu("A100-40GB", 40960, 8, False),
        _gpu("A800", 81920, 8, False),
        _gpu("V100", 32768, 8, False),
        _gpu("V100-16GB", 16384, 8, False),
        _gpu("L40S", 46068, 1),
        _gpu("L40", 46068, 1),
        _gpu("L4", 23034, 1),
        _gpu("L20", 46068, 1),
        _gpu("A10", 23028, 1, False),
        _gpu("A10G", 23028, 1, False),
        _gpu("A30", 24576, 1, False),
        _gpu("A40", 46068, 1, False),
        _gpu("A6000", 49140, 1, False),
        _gpu("T4", 15360, 1, False),
        _gpu("RTX6000-ADA", 49140, 1),
        _gpu("RTX-PRO-6000", 97887, 1),
        _gpu("RTX4090", 24564, 1),
        _gpu("RTX3090", 24576, 1, False),
        _gpu("RTX5090", 32607, 1),
        _gpu("MI210", 65520, 1, False),
        _gpu("MI250", 65520, 8, False),
        _gpu("MI300X", 196592, 8),
        _gpu("MI325X", 262128, 8),
        _gpu("MI355X", 294896, 8),
    )
}
SAME_AS: Mapping[str, str] = {
    "h100-sxm": "h100",
    "h100-80gb": "h100",
    "h100-sxm5": "h100",
    "a100-80gb": "a100",
    "a100-sxm": "a100",
    "a100-80": "a100",
    "a100-40": "a100-40gb",
    "h200-sxm": "h200",
    "v100-32gb": "v100",
    "4090": "rtx4090",
    "3090": "rtx3090",
    "5090": "rtx5090",
    "rtx-4090": "rtx4090",
    "rtx-3090": "rtx3090",
    "rtx-5090": "rtx5090",
    "rtx-a6000": "a6000",
    "rtx-6000-ada": "rtx6000-ada",
    "mi300": "mi300x",
    "mi325": "mi325x",
    "mi355": "mi355x",
}


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of equal GPUs."""

    gpu: Gpu
    per_node: int
    nodes: int
    assumed: bool = False  # nobody named it

    @property
    def total(self) -> int:
        return self.per_node * self.nodes

    @property
    def domain(self) -> int:
        """GPUs that tensor parallelism may span: the NVLink domain, or the node where there is no NVLink."""
        if self.gpu.domain == 1:
            return self.per_node
        return min(self.gpu.domain, self.total if self.gpu.domain > SERVER else self.per_node)

    def __str__(self) -> str:
        return (
            f"{self.nodes} x {self.per_node} {self.gpu.name}" if self.nodes > 1 else f"{self.per_node} {self.gpu.name}"
        )


def parse_gpus(words: Sequence[str], nodes: int | None = None) -> Cluster:
    """`H100x8`, `H100x8*2` (two such nodes), `48GBx4` (a size in place of a name). Raises GpuError."""
    if not words:
        return Cluster(GPUS["h100"], 8, nodes or 1, assumed=True)
    clusters = [_one(word) for word in words]
    first = clusters[0]
    if any((c.gpu, c.per_node) != (first.gpu, first.per_node) for c in clusters):
        raise GpuError(f"--gpus {' '.join(words)[:80]}: one engine needs equal nodes; plan each kind by itself")
    total = sum(c.nodes for c in clusters)
    if nodes is not None and total not in (1, nodes):
        raise GpuError(f"--gpus says {total} nodes and --nodes-count {nodes}; give one of them")
    return Cluster(first.gpu, first.per_node, nodes or total)


def _one(word: str) -> Cluster:
    turned = re.fullmatch(
        r"(?:(\d{1,5})[xX*])?(\d{1,4})[xX*]((?=\d*[A-Za-z])[A-Za-z0-9 ._-]{1,40}?)(?:\*(\d{1,5}))?", word.strip()
    )
    if turned:
        several = turned[1] or turned[4]
        right = f"{turned[3]}x{turned[2]}" + (f"*{several}" if several else "")
        raise GpuError(f"--gpus {word[:60]!r}: the name stands before the number; did you mean {right}?")
    match = re.fullmatch(r"([A-Za-z0-9 ._-]{1,40}?)(?:[xX:](\d{1,4}))?(?:\*(\d{1,5}))?", word.strip())
    if not match:
        raise GpuError(f"--gpus {word[:60]!r} is not NAMExCOUNT[*NODES], such as H100x8 or H100x8*2 or 48GBx4")
    name, count, nodes = match[1], int(match[2] or 1), int(match[3] or 1)
    if not count or not nodes:
        raise GpuError(f"--gpus {word[:60]!r} counts no GPU; such as H100x8*2")
    return Cluster(_named(name), count, nodes)


def gpu_of_size(gib: int) -> Gpu:
    """A GPU of which only the memory is known: PCIe, as that claims least."""
    return _gpu(f"{gib}GB", gib * 1024, 1)


def _named(name: str) -> Gpu:
    key = re.sub(r"[ _]+", "-", name.strip().lower()).removeprefix("nvidia-").removeprefix("amd-")
    found = GPUS.get(SAME_AS.get(key, key))
    if found:
        return found
    size = re.fullmatch(r"(\d{1,4})-?g(?:i)?b?", key)
    if size and int(size[1]):
        return gpu_of_size(int(size[1]))
    known = list(dict.fromkeys(gpu.name for gpu in GPUS.values()))
    hint = did_you_mean(name[:40], known) or f"; one of {', '.join(known)}"
    raise GpuError(f"--gpus: {name[:40]!r} is not known here{hint} (or give the size of its memory: 80GBx8)")
