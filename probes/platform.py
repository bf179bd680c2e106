"""Kernel, C library and driver stack are known, and equal on all nodes.

Nodes of one job should be alike: another kernel or OFED on one of them is the usual reason why DMA-BUF, peer memory or a
network plugin works on all nodes but one.

Source: /proc/sys/kernel/{osrelease,ostype}, /etc/os-release, /sys/module/*/version, /proc/driver/nvidia/version, confstr(3) CS_GNU_LIBC_VERSION.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, warn
from ncdiag.nodeset import fold
from ncdiag.parity import split

MODULES = ("mlx5_core", "ib_core", "nvidia", "nvidia_peermem", "gdrdrv", "efa", "bnxt_re", "irdma", "rdma_rxe")
"""Kernel modules whose version says which driver stack is loaded; inbox modules often have none."""


class Facts(TypedDict):
    """None: not to be had on this machine."""

    kernel: Optional[str]
    """/proc/sys/kernel/osrelease"""
    system: Optional[str]
    """PRETTY_NAME in /etc/os-release"""
    glibc: Optional[str]
    """`glibc 2.36`, of the interpreter that runs ncdiag"""
    nvidia: Optional[str]
    """`550.54.14` in /proc/driver/nvidia/version"""
    nvidia_open: Optional[bool]
    """Whether that file says `Open Kernel Module`"""
    ofed: Optional[str]
    """What `ofed_info -s` prints"""
    modules: Dict[str, str]
    """Module -> /sys/module/<module>/version"""


def collect(host: Host) -> Facts:
    driver = _text(host, "/proc/driver/nvidia/version")
    version = re.search(r"Kernel Module.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", driver)
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', _text(host, "/etc/os-release"), re.M)
    return {
        "kernel": host.value("/proc/sys/kernel/osrelease") or _kernel(_text(host, "/proc/version")),
        "system": release.group(1) if release else None,
        "glibc": _glibc(host),
        "nvidia": version.group(1) if version else None,
        "nvidia_open": "Open Kernel Module" in driver if driver else None,
        "ofed": _ofed(host),
        "modules": {
            name: value for name in MODULES for value in [_value(host, "/sys/module/%s/version" % name)] if value
        },
    }


def _text(host: Host, path: str) -> str:
    return _value(host, path) or ""


def _value(host: Host, path: str) -> Optional[str]:
    try:
        return host.value(path)
    except HostError:
        return None


def _kernel(version: str) -> Optional[str]:
    match = re.match(r"Linux version (\S+)", version)
    return match.group(1) if match else None


def _glibc(host: Host) -> Optional[str]:
    try:
        return host.ask("glibc", lambda: os.confstr("CS_GNU_LIBC_VERSION"))
    except (HostError, ValueError):
        return None


def _ofed(host: Host) -> Optional[str]:
    try:
        output = host.run(["ofed_info", "-s"])
    except HostError:
        return None
    return output.out.strip().rstrip(":") or None


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    nodes = dict(snapshot.each(PROBE.id))
    for node, facts in nodes.items():
        if not facts["kernel"]:
            yield skip("no kernel version to be read", node, source="/proc/sys/kernel/osrelease")
            continue
        parts = [
            "Linux " + facts["kernel"],
            facts["system"],
            facts["glibc"],
            facts["ofed"],
            "NVIDIA driver " + facts["nvidia"] if facts["nvidia"] else None,
        ]
        yield ok(
            ", ".join(part for part in parts if part),
            node,
            source="/proc/sys/kernel/osrelease, /etc/os-release",
            observed=facts["kernel"],
        )
    for name, path in (
        ("kernel", "/proc/sys/kernel/osrelease"),
        ("nvidia", "/proc/driver/nvidia/version"),
        ("ofed", "ofed_info -s"),
        ("glibc", "confstr"),
    ):
        difference = split({node: facts[name] for node, facts in nodes.items()})
        if difference is None:
            continue
        for value, outliers in difference.outliers.items():
            yield warn(
                "%s is %s on %s, %s"
                % (
                    name,
                    value,
                    fold(outliers),
                    difference.others(value),
                ),
                outliers[0] if len(outliers) == 1 else None,
                source=path,
                observed=value,
                expected=difference.common,
                cause="version-mismatch",
                remedy="bring the nodes to one image; until then suspect this node first",
                package=name,
            )


PROBE = Probe("platform", "Kernel, C library and drivers are known and equal on all nodes", judge, collect)
