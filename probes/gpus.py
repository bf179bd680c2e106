"""The GPUs of a node as its driver tells them, as facts for other probes; nothing is judged here.

A GPU that the PCI bus shows and the driver does not, a link that is gone, memory that some older process still holds: each of
these stops an engine in another way, and all of them are in one answer of the driver.

Source: nvidia-smi -q -x, nvidia-smi nvlink (comes with the driver); /proc/driver/nvidia where nvidia-smi is missing.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Dict, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Probe
from ncdiag.nccl import smi
from ncdiag.nccl.sysfs import names, word

QUERY = ["nvidia-smi", "-q", "-x"]
CAPABILITY = ["nvidia-smi", "--query-gpu=index,pci.bus_id,compute_cap", "--format=csv,noheader"]
NVLINK_STATE = ["nvidia-smi", "nvlink", "-s"]
NVLINK_REMOTE = ["nvidia-smi", "nvlink", "-R"]
NVLINK_ERRORS = ["nvidia-smi", "nvlink", "-e"]
_END = "</nvidia_smi_log>"
SMI_TIMEOUT_S = 25.0  # without persistence mode the driver starts up each GPU first


class Facts(TypedDict):
    gpus: List[smi.Gpu]
    driver: Optional[str]  # 570.86.15
    cuda: Optional[str]  # the newest CUDA that the driver serves: 12.8
    open_modules: Optional[bool]  # the open kernel modules; None: no /proc/driver/nvidia/version
    hidden: List[str]  # PCI addresses in /proc/driver/nvidia/gpus that nvidia-smi does not list
    why: Optional[str]  # why the driver could not be asked; then `gpus` is empty


def collect(host: Host) -> Facts:
    version = word(host, "/proc/driver/nvidia/version") or ""
    known = sorted(names(host, "/proc/driver/nvidia/gpus"))
    facts: Facts = {
        "gpus": [],
        "driver": _first(r"Kernel Module(?: for \S+)?\s+(\d[\d.]+)", version),
        "cuda": None,
        "open_modules": ("Open Kernel Module" in version) if version else None,
        "hidden": [],
        "why": None,
    }
    try:
        root = _query(host)
    except (HostError, ValueError) as error:
        facts["why"] = str(error)
        facts["hidden"] = known
        return facts
    facts["driver"] = root.findtext("driver_version") or facts["driver"]
    facts["cuda"] = root.findtext("cuda_version")
    capability = _capability(host)
    facts["gpus"] = [smi.gpu(element, place, capability) for place, element in enumerate(root.findall("gpu"))]
    _add_nvlinks(host, facts["gpus"])
    facts["hidden"] = [address for address in known if address not in {gpu["busid"] for gpu in facts["gpus"]}]
    return facts


def _query(host: Host) -> ElementTree.Element:
    """Raises HostError or ValueError with the reason."""
    output = host.run(QUERY, SMI_TIMEOUT_S)
    start, end = output.out.find("<"), output.out.rfind(_END) + len(_END)
    if start < 0 or (output.rc != 0 and end < len(_END)):
        said = " ".join((output.out + " " + output.err).split())[:300]
        raise ValueError(f"nvidia-smi: {said or f'exit status {output.rc}'}")
    if "<!ENTITY" in output.out:
        raise ValueError("nvidia-smi: its output is not what the driver writes")
    try:  # behind it stand warnings (a corrupted infoROM), which also give another status
        return ElementTree.fromstring(output.out[start : max(start, end)] or output.out)
    except ElementTree.ParseError as error:
        raise ValueError(f"nvidia-smi -q -x: {error}") from None


def _capability(host: Host) -> Dict[str, int]:
    """PCI address -> compute capability as NCCL writes it (`9.0` is 90)."""
    found: Dict[str, int] = {}
    for line in _lines(host, CAPABILITY):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and re.match(r"\d+\.\d+$", fields[2]):
            found[smi.normal_address(fields[1])] = int(fields[2].replace(".", ""))
    return found


def _lines(host: Host, argv: List[str]) -> List[str]:
    try:
        output = host.run(argv, SMI_TIMEOUT_S)
    except HostError:
        return []
    return output.out.splitlines() if output.rc == 0 else []


def _add_nvlinks(host: Host, gpus: List[smi.Gpu]) -> None:
    state = smi.per_link(_lines(host, NVLINK_STATE))
    remote = smi.per_link(_lines(host, NVLINK_REMOTE))
    errors = smi.per_link(_lines(host, NVLINK_ERRORS))
    addresses = {gpu["busid"] for gpu in gpus}
    for gpu in gpus:
        own = state.get(gpu["index"])
        if own is None:
            continue
        links: List[smi.Link] = []
        for number, texts in sorted(own.items()):
            far = _first(
                r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)",
                " ".join(remote.get(gpu["index"], {}).get(number, [])),
            )
            address = smi.normal_address(far) if far else None
            counted = [
                int(count)
                for text in errors.get(gpu["index"], {}).get(number, [])
                for count in re.findall(r"Errors?:\s*(\d+)", text)
            ]
            links.append(
                {
                    "number": number,
                    "active": any("GB/s" in text for text in texts),
                    "remote": address,
                    "to_gpu": address in addresses,
                    "errors": sum(counted),
                }
            )
        gpu["nvlinks"] = links


def _first(pattern: str, text: str) -> Optional[str]:
    match = re.search(pattern, text)
    return match.group(1) if match else None


PROBE = Probe("gpus", "facts: GPUs as the driver tells them", None, collect, timeout_s=60.0)
