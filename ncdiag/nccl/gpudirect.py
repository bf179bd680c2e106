"""Whether kernel and drivers allow GPUDirect RDMA, from the facts of the probe `gpudirect`.

Source: NCCL src/transport/net_ib/gdr.cc (ncclIbGdrSupport, ncclIbDmaBufSupport) of v2.18.3-1 to v2.30.7-1; NVIDIA GPUDirect RDMA guide.
"""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

DMABUF_KERNEL = (5, 12)
"""Linux from which verbs can register a DMA-BUF (ib_umem_dmabuf)."""

Facts = Mapping[str, Any]


class Ways(NamedTuple):
    """True, False, or None where it cannot be told; `why` in words."""

    peermem: Optional[bool]
    dmabuf: Optional[bool]
    why: List[str]

    @property
    def possible(self) -> Optional[bool]:
        if self.peermem or self.dmabuf:
            return True
        return False if self.peermem is False and self.dmabuf is False else None


def ways(facts: Facts) -> Ways:
    """`facts` of the probe `gpudirect`."""
    peermem = bool(facts["peermem_files"]) if facts["modules_known"] else (True if facts["peermem_files"] else None)
    why = []
    if peermem is False:
        why.append("nvidia_peermem is not loaded")
    dmabuf, reason = _dmabuf(facts)
    if reason:
        why.append(reason)
    return Ways(peermem, dmabuf, why)


def _dmabuf(facts: Facts) -> Tuple[Optional[bool], str]:
    """DMA-BUF needs a kernel that has it, and the open kernel modules of the GPU driver."""
    kernel = facts["kernel"]
    if kernel is not None and tuple(kernel) < DMABUF_KERNEL:
        return (
            False,
            f"Linux {kernel[0]}.{kernel[1]} has no DMA-BUF for RDMA (needs {DMABUF_KERNEL[0]}.{DMABUF_KERNEL[1]})",
        )
    if facts["open_modules"] is False:
        return False, "the GPU driver is not the open kernel modules, which DMA-BUF needs"
    if facts["options"].get("CONFIG_PCI_P2PDMA") == "n" or facts["options"].get("CONFIG_DMABUF_MOVE_NOTIFY") == "n":
        return False, "this kernel is built without PCI_P2PDMA or DMABUF_MOVE_NOTIFY, which DMA-BUF needs"
    if facts["open_modules"] and kernel is not None:
        return True, ""
    return None, "whether DMA-BUF works cannot be told from here"


def drivers_allow(facts: Optional[Facts]) -> Optional[bool]:
    """For the topology: True or False where it is certain, else None."""
    return ways(facts).possible if facts and facts["has_gpu_driver"] else None
