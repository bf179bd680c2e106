"""What a container allows is enough for the engine.

Containers hide devices, network and limits: without the host's network NCCL needs routable pod addresses, a CPU quota below the
number of ranks starves the threads that drive the network, a memory limit below the size of the weights ends in an OOM kill.

Source: cgroup v1/v2 files (memory.max, cpu.max, memory.limit_in_bytes, cpu.cfs_quota_us), /.dockerenv, /run/.containerenv, /proc/self/cgroup,
/proc/self/status CapEff, iflink against ifindex below /sys/class/net.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn

CAPABILITIES = {"SYS_PTRACE": 19, "IPC_LOCK": 14, "NET_ADMIN": 12, "SYS_ADMIN": 21, "SYS_NICE": 23}
"""Name -> bit in CapEff, of those that matter here."""

UNLIMITED = 1 << 60
"""cgroup v1 writes a number near 2**63 where nothing is limited."""


class Facts(TypedDict):
    """None: could not be read, or not limited where so said."""

    runtime: Optional[str]
    """`docker`, `podman`, `kubernetes`, `lxc`, `slurm`, `container`; None outside a container."""
    capabilities: List[str]
    memory_limit_bytes: Optional[int]
    """None: not limited."""
    memory_used_bytes: Optional[int]
    cpu_limit: Optional[float]
    """CPUs; None: not limited."""
    cpus_allowed: Optional[int]
    """CPUs in Cpus_allowed_list."""
    own_network: Optional[bool]
    """Whether an interface's other end lies elsewhere (a veth): the network is not the host's."""
    sources: Dict[str, str]


def collect(host: Host) -> Facts:
    sources: Dict[str, str] = {}
    status = _read(host, "/proc/self/status")
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M)
    bits = int(effective.group(1), 16) if effective else 0
    folder = _cgroup(host)
    return {
        "runtime": _runtime(host),
        "capabilities": sorted(name for name, bit in CAPABILITIES.items() if bits >> bit & 1),
        "memory_limit_bytes": _limit(
            host,
            [
                folder + "/memory.max",
                "/sys/fs/cgroup/memory.max",
                _legacy(host, "memory") + "/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ],
            sources,
            "memory",
        ),
        "memory_used_bytes": _limit(
            host,
            [
                folder + "/memory.current",
                "/sys/fs/cgroup/memory.current",
                _legacy(host, "memory") + "/memory.usage_in_bytes",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            ],
            sources,
            "used",
        ),
        "cpu_limit": _cpus(host, folder, sources),
        "cpus_allowed": _count(re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.M)),
        "own_network": _own_network(host),
        "sources": sources,
    }


def _read(host: Host, path: str) -> str:
    try:
        return host.read(path)
    except HostError:
        return ""


def _cgroup(host: Host) -> str:
    match = re.search(r"^0::(/\S*)", _read(host, "/proc/self/cgroup"), re.M)
    return "/sys/fs/cgroup" + match.group(1).rstrip("/") if match else "/sys/fs/cgroup"


def _legacy(host: Host, controller: str) -> str:
    """The folder of a controller of cgroup v1; its root inside most containers."""
    match = re.search(r"^\d+:(?:[^:]*,)?%s(?:,[^:]*)?:(/\S*)" % controller, _read(host, "/proc/self/cgroup"), re.M)
    return "/sys/fs/cgroup/%s%s" % (controller, match.group(1).rstrip("/") if match else "")


def _runtime(host: Host) -> Optional[str]:
    try:
        environment = host.environ()
    except HostError:
        environment = {}
    if "KUBERNETES_SERVICE_HOST" in environment or host.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if host.exists("/.dockerenv"):
        return "docker"
    if host.exists("/run/.containerenv"):
        return "podman"
    match = re.search(r"(docker|kubepods|lxc|containerd|libpod)", _read(host, "/proc/self/cgroup"))
    if match:
        return {"kubepods": "kubernetes", "libpod": "podman", "containerd": "container"}.get(
            match.group(1), match.group(1)
        )
    return environment.get("container") or None


def _limit(host: Host, paths: List[str], sources: Dict[str, str], name: str) -> Optional[int]:
    for path in paths:
        value = host.number(path)
        if value is None and _read(host, path).strip() == "max":
            sources[name] = path
            return None
        if value is not None:
            sources[name] = path
            return value if value < UNLIMITED else None
    return None


def _cpus(host: Host, folder: str, sources: Dict[str, str]) -> Optional[float]:
    for path in (folder + "/cpu.max", "/sys/fs/cgroup/cpu.max"):
        match = re.match(r"(max|\d+) (\d+)", _read(host, path))
        if match:
            sources["cpu"] = path
            return None if match.group(1) == "max" else int(match.group(1)) / (int(match.group(2)) or 100_000)
    for path in dict.fromkeys((_legacy(host, "cpu"), "/sys/fs/cgroup/cpu")):
        quota, period = host.number(path + "/cpu.cfs_quota_us"), host.number(path + "/cpu.cfs_period_us")
        if quota is not None and period:
            sources["cpu"] = path + "/cpu.cfs_quota_us"
            return quota / period if quota > 0 else None
    return None


def _count(match: Optional[re.Match[str]]) -> Optional[int]:
    if match is None:
        return None
    total = 0
    for part in match.group(1).split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _own_network(host: Host) -> Optional[bool]:
    names = [name for name in host.names("/sys/class/net") if name != "lo"]
    if not names:
        return None
    for name in names:
        index, link = host.number("/sys/class/net/%s/ifindex" % name), host.number("/sys/class/net/%s/iflink" % name)
        if index is not None and link is not None and index != link and not host.exists("/proc/net/vlan/" + name):
            return True
    return False


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    plan = snapshot.plan
    local_ranks = (plan.ranks + (plan.nodes or 1) - 1) // (plan.nodes or 1) if plan.ranks else None
    for node, facts in snapshot.each(PROBE.id):
        source = ", ".join(sorted(set(facts["sources"].values()))) or "/proc/self/cgroup"
        limit, cpus = facts["memory_limit_bytes"], facts["cpu_limit"]
        if limit and facts["memory_used_bytes"] and facts["memory_used_bytes"] > 0.9 * limit:
            yield warn(
                "%.1f of the %.1f GiB of memory that the cgroup allows are used"
                % (facts["memory_used_bytes"] / 2**30, limit / 2**30),
                node,
                source=source,
                observed=facts["memory_used_bytes"],
                unit="bytes",
                expected=limit,
                cause="host-memory-oom",
                setting="memory",
                remedy="raise the memory limit of the container (Kubernetes: resources.limits.memory), or end what uses it",
            )
        few = (local_ranks or 1) + 1
        if cpus is not None and cpus < few:
            yield warn(
                "a quota of %.1f CPUs for %s rank%s: NCCL's and the engine's own threads will starve"
                % (cpus, local_ranks or "at least 1", "s" if local_ranks != 1 else ""),
                node,
                source=source,
                observed=cpus,
                unit="CPUs",
                expected=few,
                cause="cpu-starved",
                setting="cpu",
                remedy="raise or remove the CPU limit (Kubernetes: resources.limits.cpu; docker: --cpus); at least two CPUs a rank",
            )
        shown = [
            facts["runtime"] or "no container",
            "own network" if facts["own_network"] else "",
            "%.1f GiB of memory" % (limit / 2**30) if limit else _unlimited("memory", facts),
            "%.1f CPUs" % cpus if cpus else _unlimited("cpu", facts),
            "with " + " ".join(facts["capabilities"]) if facts["capabilities"] else "no capability of note",
        ]
        summary = ", ".join(part for part in shown if part)
        if not facts["sources"] and facts["runtime"] is None:
            yield skip("no container, and no limits of a cgroup to be read", node, source="/proc/self/cgroup")
        elif facts["runtime"] and not {"memory", "cpu"} & set(facts["sources"]):
            yield unknown(
                "%s, whose limits of memory and CPUs could not be read" % facts["runtime"],
                node,
                source=source,
                remedy="mount /proc and /sys/fs/cgroup into the container, or see its limits where it was started",
            )
        else:
            yield ok(summary, node, source=source)


def _unlimited(name: str, facts: Facts) -> str:
    what = "CPUs" if name == "cpu" else name
    return "%s not limited" % what if name in facts["sources"] else "limit of %s not told" % what


PROBE = Probe("container", "What the container allows is enough", judge, collect)
