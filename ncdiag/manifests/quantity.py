"""Quantities of Kubernetes (`16Gi`, `500m`, `1e3`) and the resources that are GPUs or RDMA devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ncdiag.manifests.document import mapping

_UNITS = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
_GPU = re.compile(
    r"^(?:nvidia\.com/(?:gpu(?:\.shared)?|mig-[\w.]+|pgpu)|amd\.com/gpu|habana\.ai/gaudi|intel\.com/gpu|gpu\.intel\.com/(?:i915|xe)|aliyun\.com/gpu-\w+|\S+/gpu)$"
)
_RDMA = re.compile(
    r"rdma|infiniband|roce|/efa$|(?:^|[/_.-])(?:ib|hca|hostdev|mlnx\w*|connectx\w*|mlx\w*)(?:$|[/_.\d-])", re.I
)

_OTHER = re.compile(r"^(?:google\.com/tpu|aws\.amazon\.com/neuron\w*|huawei\.com/Ascend\w+)$")
"""Accelerators that do not talk by NCCL."""


def number(value: object) -> float | None:
    """In units: bytes, cores, devices. None for what is no quantity."""
    match = (
        re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([A-Za-z]*)", str(value).strip()) if value is not None else None
    )
    if match is None or match.group(2) not in _UNITS:
        return None
    try:
        return float(match.group(1)) * _UNITS[match.group(2)]
    except ValueError:
        return None


def limits(container: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(mapping(container.get("resources")).get("limits"))


def requests(container: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(mapping(container.get("resources")).get("requests"))


def gpus(resources: Mapping[str, Any]) -> int:
    return sum(int(number(value) or 0) for name, value in resources.items() if _GPU.match(name))


def gpu_names(resources: Mapping[str, Any]) -> list[str]:
    return [name for name in resources if _GPU.match(name)]


def rdma_names(resources: Mapping[str, Any]) -> list[str]:
    return [name for name in resources if _RDMA.search(name) and not _GPU.match(name)]


def other_accelerators(resources: Mapping[str, Any]) -> list[str]:
    return [name for name in resources if _OTHER.match(name)]
