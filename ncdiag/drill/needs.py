"""What a drill needs of this machine, each with the way out where it is missing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from . import engines
from .faults import Fault
from .hosts import usable

SHAPES = {
    "gloo": ("two hosts, one rank of a plain torch job (gloo) on each", ("torch",)),
    "tp2": ("one host, vLLM with tensor parallelism of 2", ("torch", "transformers", "vllm")),
    "nodes": ("two hosts, vLLM's own multi-node mode, one rank on each", ("torch", "transformers", "vllm")),
    "ray": ("two hosts in a Ray cluster, vLLM with one rank on each", ("torch", "transformers", "vllm", "ray")),
}
"""Shape -> what it is, and the modules that the engine's interpreter must have."""
_PROGRAMS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "nft": "nftables",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""Program -> the package of Debian that has it."""
_SBIN = "/usr/sbin:/sbin"


def missing(shape: str) -> list[str]:
    """One sentence for each thing that is missing, with the way out; empty where a drill of this shape can run."""
    found = machine()
    if lacking := engines.lacks(*SHAPES[shape][1]):
        found.append(f"the engine's interpreter: {lacking}, or --python here")
    return found


def machine() -> list[str]:
    """The same for hosts without an engine."""
    if not sys.platform.startswith("linux"):
        return [f"hosts are network namespaces of Linux, and this is {sys.platform}; run it on a Linux machine"]
    if os.geteuid() != 0:
        return ["hosts are network namespaces, which need root; run it with sudo, or as root of a container"]
    path = f"{os.environ.get('PATH', os.defpath)}:{_SBIN}"
    absent = [program for program in _PROGRAMS if shutil.which(program, path=path) is None]
    if absent:
        packages = sorted({_PROGRAMS[program] for program in absent})
        return [
            f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing; apt-get install {' '.join(packages)}"
        ]
    if reason := usable():
        return [f"{reason}; in a container it takes --privileged, or --cap-add SYS_ADMIN,NET_ADMIN"]
    return []


def lacks(fault: Fault) -> str:
    """What this one fault needs beyond its shape; empty where it is there."""
    groups = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/cgroup.controllers"))
    if "host-memory-oom" in fault.causes and not any(path.exists() and os.access(path, os.W_OK) for path in groups):
        return "cgroups with a memory limit cannot be made here"
    return ""
