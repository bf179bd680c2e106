"""The engine can open its RDMA devices: verbs library, provider, /dev/infiniband and its permissions.

In a container /sys shows all devices of the host, so everything looks right, while /dev/infiniband or the library is missing; NCCL
then logs `No device found` at INFO level and takes sockets.

Source: NCCL src/misc/ibvsymbols.cc (libibverbs.so.1), rdma-core libibverbs/init.c; /dev/infiniband, /sys/class/infiniband_verbs.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag import engine
from ncdiag.host import Absent, Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nccl.sysfs import names
from ncdiag.nodeset import counted

VERBS = "/sys/class/infiniband_verbs"

FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
)
"""Where distributions put libibverbs.so.1."""

PROVIDERS = {
    "mlx5_core": "libmlx5",
    "mlx4_core": "libmlx4",
    "efa": "libefa",
    "bnxt_en": "libbnxt_re",
    "ice": "libirdma",
}
"""Kernel driver -> the provider library that libibverbs loads for it; software devices have theirs in ibverbs-providers."""


class Node(TypedDict):
    kind: str  # character
    mode: int  # permission bits


class Facts(TypedDict):
    nodes: Dict[str, Node]  # /dev/infiniband/<name>; empty where the folder is missing
    folder: Optional[bool]  # whether /dev/infiniband exists; None: a captured tree without it
    library: Optional[str]  # path of libibverbs.so.1
    providers: List[str]  # names of provider libraries beside it
    searched: bool  # the library folders could be listed
    root: bool  # looked at in a process's own root
    verbs_class: Optional[bool]  # whether /sys/class/infiniband_verbs exists; None: it cannot be read


def collect(host: Host) -> Facts:
    found = engine.find(host)
    root = found.root if found else ""
    folder: Optional[bool] = host.exists(f"{root}/dev/infiniband")
    if not folder and not host.sought(f"{root}/dev/infiniband"):
        folder = None
    nodes: Dict[str, Node] = {}
    for name in names(host, f"{root}/dev/infiniband"):
        try:
            stat = host.stat(f"{root}/dev/infiniband/{name}")
        except HostError:
            continue
        nodes[name] = {"kind": stat.kind, "mode": stat.mode}
    library, providers, searched = _library(host, root)
    return {
        "nodes": nodes,
        "folder": folder,
        "library": library,
        "providers": providers,
        "searched": searched,
        "root": bool(root),
        "verbs_class": _verbs_class(host),
    }


def _verbs_class(host: Host) -> Optional[bool]:
    try:
        host.list(VERBS)
    except Absent:
        return None if host.recorded else False
    except HostError:
        return None
    return True


def _library(host: Host, root: str) -> tuple[Optional[str], List[str], bool]:
    library, providers, searched = None, [], False
    for folder in FOLDERS:
        listed = names(host, root + folder)
        searched = searched or bool(listed)
        if library is None and "libibverbs.so.1" in listed:
            library = f"{folder}/libibverbs.so.1"
        providers += [name for name in listed if name.startswith("lib") and "-rdmav" in name]
        providers += [name for name in names(host, f"{root}{folder}/libibverbs") if name.startswith("lib")]
    return library, sorted(set(providers)), searched


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        rdma = snapshot.facts(node, "rdma-devices")
        if rdma is None:
            continue
        devices = rdma["devices"]
        if not devices:
            yield skip("no RDMA device on this node", node, source="/sys/class/infiniband")
            continue
        problems = [*_user_space(node, facts, devices), *_device_nodes(node, facts, devices)]
        problems += _libraries(node, facts, devices)
        yield from problems
        if not problems:
            yield ok(
                f"{counted(len(facts['nodes']), 'device node')} and {facts['library']} are there",
                node,
                source="/dev/infiniband",
            )


def _user_space(node: str, facts: Facts, devices: List[Dict[str, object]]) -> Iterator[Finding]:
    """A device without uverbsN is one that no program can open."""
    closed = [str(one["name"]) for one in devices if one["verbs"] is None]
    if closed and facts.get("verbs_class") is None:
        yield unknown(f"whether programs may open {', '.join(closed[:8])} was not read", node, source=VERBS)
    elif closed:
        yield fail(
            f"{', '.join(closed[:8])}: no program can open {'it' if len(closed) == 1 else 'them'}, there is no uverbs device for it",
            node,
            source=VERBS,
            observed=closed,
            cause="rdma-unavailable",
            remedy="modprobe ib_uverbs on the host; then see /dev/infiniband and `dmesg | grep -i infiniband`",
        )


def _device_nodes(node: str, facts: Facts, devices: List[Dict[str, object]]) -> Iterator[Finding]:
    if facts["folder"] is None:
        yield unknown("/dev/infiniband was not recorded", node, source="/dev/infiniband")
        return
    missing = [
        f"{one['name']} (uverbs{one['verbs']})"
        for one in devices
        if one["verbs"] is not None and f"uverbs{one['verbs']}" not in facts["nodes"]
    ]
    if missing:
        what = (
            "/dev/infiniband does not exist" if not facts["folder"] else "device nodes are missing in /dev/infiniband"
        )
        yield fail(
            f"{what}: {', '.join(missing[:8])} cannot be opened",
            node,
            source="/dev/infiniband",
            observed=sorted(facts["nodes"]),
            cause="rdma-unavailable",
            remedy="docker run --device=/dev/infiniband; Kubernetes: the RDMA device plugin's resource, or a privileged pod",
        )
    closed = [
        name for name, one in facts["nodes"].items() if name.startswith("uverbs") and one["mode"] & 0o006 != 0o006
    ]
    if closed:
        yield warn(
            f"{', '.join(sorted(closed)[:8])}: only root may open them (mode {facts['nodes'][closed[0]]['mode']:o})",
            node,
            source="/dev/infiniband",
            observed=f"{facts['nodes'][closed[0]]['mode']:o}",
            expected="666",
            cause="rdma-unavailable",
            remedy="install rdma-core's udev rules (mode 0666), or run the engine as root",
        )


def _libraries(node: str, facts: Facts, devices: List[Dict[str, object]]) -> Iterator[Finding]:
    if not facts["searched"]:
        yield unknown("the library folders could not be listed", node, source=FOLDERS[0])
        return
    if facts["library"] is None:
        yield fail(
            "libibverbs.so.1 is not in any of the usual folders; NCCL cannot use RDMA without it",
            node,
            source=", ".join(FOLDERS[:3]),
            cause="rdma-unavailable",
            remedy="install rdma-core: apt install libibverbs1 ibverbs-providers, or dnf install libibverbs",
        )
        return
    wanted = {PROVIDERS[str(one["driver"])] for one in devices if one["driver"] in PROVIDERS}
    lacking = sorted(name for name in wanted if not any(found.startswith(name) for found in facts["providers"]))
    if lacking:
        yield fail(
            f"{facts['library']} is there, but its provider {', '.join(lacking)} is not: no device will be found",
            node,
            source=facts["library"],
            observed=facts["providers"],
            expected=sorted(wanted),
            cause="rdma-unavailable",
            remedy="apt install ibverbs-providers (dnf install libibverbs) inside the container",
        )


PROBE = Probe("verbs-access", "The engine can open its RDMA devices", judge, collect, needs=("rdma-devices",))
