"""Ray counts the GPUs that are there, on the network that NCCL takes, and the plan can be placed.

vLLM over Ray asks for one bundle a GPU and waits up to 30 minutes for a placement that cannot come: a node that never joined, GPUs
that `ray start` did not see, or too few of them. An object store larger than /dev/shm goes to disk without an error.

Source: command line of the raylet (`--static_resource_list`, `--object_store_memory`, `--node_ip_address`, `--*_port`) and the ports on which
it listens (/proc/PID/net/tcp, /proc/PID/fd); Ray's own node list where the fleet is Ray.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, TypedDict

from ncdiag import engine
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, warn
from ncdiag.nccl import interfaces, node
from ncdiag.nccl.version import NEWEST_READ
from ncdiag.nodeset import counted, fold
from ncdiag.parity import shared

RAYLET = re.compile(r"/raylet(?:\0|$)")
OPTION = re.compile(
    r"\0--(static_resource_list|object_store_memory|temp_dir|gcs-address|node_ip_address|node_manager_port|object_manager_port|"
    r"min_worker_port|max_worker_port)=([^\0]*)"
)
MANAGERS = {"node_manager_port": "Ray's node manager", "object_manager_port": "Ray's object manager"}
LISTENING = "0A"
"""The state in /proc/PID/net/tcp."""
MIN_STORE_BYTES = 75 << 20
"""Ray refuses a smaller object store (OBJECT_STORE_MINIMUM_MEMORY_BYTES)."""


class Raylet(TypedDict):
    pid: int
    resources: Dict[str, float]
    """What `ray start` declared: CPU, GPU, memory and object_store_memory in bytes, custom ones."""
    gcs_address: Optional[str]
    temp_dir: Optional[str]
    node_ip: Optional[str]
    """None also where it runs in another network namespace, as that of a pod."""
    ports: Dict[str, int]
    """Ray's name of a port -> port on which the raylet listens. Not fixed ones are told as `first` and `second`."""
    worker_ports: Optional[List[int]]
    """The lowest and the highest port that the workers are given; None where they take any."""


class Member(NamedTuple):
    """One node of the cluster."""

    name: str
    gpus: float
    """Declared to Ray."""
    store_bytes: Optional[float]
    address: Optional[str]
    alive: bool


def collect(host: Host) -> List[Raylet]:
    raylets: List[Raylet] = []
    for pid, line in engine.processes(host):
        if RAYLET.search(line.split("\0--")[0]):
            told = dict(OPTION.findall(line))
            ours = engine.in_our_network(host, pid)
            raylets.append({"pid": pid, "resources": _resources(told.get("static_resource_list", "")),
                            "gcs_address": told.get("gcs-address"), "temp_dir": told.get("temp_dir"), "node_ip": told.get("node_ip_address") if ours else None,
                            "ports": _ports(host, pid, told), "worker_ports": _worker_ports(told)})  # fmt: skip
    return raylets


def _ports(host: Host, pid: int, told: Dict[str, str]) -> Dict[str, int]:
    """A port given as 0 is one that the kernel picked: it shows among the raylet's sockets only, and not which manager's it is."""
    fixed = {
        name: int(told[option]) for option, name in MANAGERS.items() if told.get(option, "0").lstrip("0").isdecimal()
    }
    others = [port for port in _listening(host, pid) if port not in fixed.values()]
    for port in others[: len(MANAGERS) - len(fixed)]:
        fixed["Ray's %s manager port" % ("second" if "Ray's first manager port" in fixed else "first")] = port
    return fixed


def _listening(host: Host, pid: int) -> List[int]:
    """Ports of the process's own listening sockets, sorted; empty where another user's process shows none."""
    own = set(_descriptors(host, "/proc/%d/fd" % pid))
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = host.read("/proc/%d/net/%s" % (pid, table)).splitlines()[1:]
        except HostError:
            continue
        for words in map(str.split, lines):
            if len(words) > 9 and words[3] == LISTENING and "socket:[%s]" % words[9] in own:
                found.add(int(words[1].rpartition(":")[2], 16))
    return sorted(found)


def _descriptors(host: Host, folder: str) -> Iterator[str]:
    try:
        names = host.list(folder)
    except HostError:
        return
    for name in names:
        try:
            yield host.link("%s/%s" % (folder, name))
        except HostError:
            continue


def _worker_ports(told: Dict[str, str]) -> Optional[List[int]]:
    ends = [told.get(name, "") for name in ("min_worker_port", "max_worker_port")]
    low, high = (int(end) if end.isdecimal() else 0 for end in ends)
    return [low, high] if 0 < low <= high else None


def _resources(text: str) -> Dict[str, float]:
    """`CPU,8.0,GPU,8,node:192.0.2.1,1.0` as numbers; the entries that only name a node are left out."""
    words = text.split(",")
    found = {}
    for index in range(0, len(words) - 1, 2):
        try:
            amount = float(words[index + 1])
        except ValueError:
            continue
        if words[index] and not words[index].startswith("node:"):
            found[words[index]] = amount
    return found


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    members = [member for name in snapshot.nodes for member in [_member(snapshot, name)] if member is not None]
    if not members:
        yield skip("no node runs a raylet, and none was reached through Ray", source="/proc/PID/cmdline")
        return
    found = [finding for member in members for finding in _one(snapshot, member)]
    found.extend(_clusters(snapshot))
    found.extend(_placement(snapshot, [member for member in members if member.alive]))
    yield from found
    if not found:
        total = sum(member.gpus for member in members)
        yield ok(
            "%s in the Ray cluster with %g GPU%s declared"
            % (counted(len(members), "node"), total, "" if total == 1 else "s"),
            source="Ray's node list, raylet",
            observed=total,
            unit="GPUs",
        )


def _member(snapshot: Snapshot, name: str) -> Optional[Member]:
    told: Dict[str, Any] = snapshot.nodes[name].meta.get("ray") or {}
    raylets: List[Raylet] = snapshot.facts(name, PROBE.id) or []
    if not told and not raylets:
        return None
    resources = told.get("resources") or (raylets[0]["resources"] if raylets else {})
    return Member(
        name,
        resources.get("GPU", 0.0),
        resources.get("object_store_memory"),
        told.get("address"),
        told.get("alive", True),
    )


def _one(snapshot: Snapshot, member: Member) -> Iterator[Finding]:
    if not member.alive:
        yield fail("Ray counts this node as dead", member.name, source="Ray's node list", observed="DEAD", expected="ALIVE",
                   cause="ray-node-lost", remedy="see why: ray list nodes --filter state=DEAD --detail; then ray start there again")  # fmt: skip
        return
    gpus = snapshot.facts(member.name, "gpus")
    there = None if gpus is None or gpus["why"] else len(gpus["gpus"])
    if there is not None and member.gpus != there:
        more = member.gpus > there
        yield (fail if more else warn)(
            "Ray was told of %g GPUs, %d are there%s" % (member.gpus, there, "" if more else ": no placement will use the others"), member.name,
            source="raylet, nvidia-smi", observed=member.gpus, expected=there, unit="GPUs", cause="ray-resources-infeasible",
            remedy="ray stop; ray start … --num-gpus=%d (without CUDA_VISIBLE_DEVICES hiding some)" % there)  # fmt: skip
    shm = snapshot.facts(member.name, "shm")
    if shm and member.store_bytes and member.store_bytes > shm["total_bytes"]:
        yield warn("Ray's object store of %.1f GiB is larger than /dev/shm (%.1f GiB): it goes to the disk" % (
            member.store_bytes / 2**30, shm["total_bytes"] / 2**30), member.name, source="raylet, statvfs /dev/shm", observed=member.store_bytes,
            expected=shm["total_bytes"], unit="bytes", cause="shm-too-small",
            remedy="enlarge /dev/shm (--shm-size, --ipc=host), or ray start --object-store-memory=%d" % max(MIN_STORE_BYTES, shm["total_bytes"] // 2))  # fmt: skip
    yield from _address(snapshot, member)


def _address(snapshot: Snapshot, member: Member) -> Iterator[Finding]:
    """Where Ray's list says it; a raylet that is seen is judged by the probe node-address."""
    local = node.addresses(snapshot, member.name)
    if member.address is None or not local or (snapshot.facts(member.name, "node-address") or {}).get("raylets"):
        return
    values = {key: setting.value for key, setting in (node.settings(snapshot, member.name) or {}).items()}
    chosen = interfaces.bootstrap(local, values, node.release(snapshot, member.name) or NEWEST_READ).chosen
    own = next((entry for entry in local if entry.address == member.address), None)
    if chosen and own is not None and own.name != chosen[0].name:
        yield warn("Ray knows this node as %s on %s, NCCL will take %s (%s)" % (member.address, own.name, chosen[0].name, chosen[0].address),
                   member.name, source="Ray's node list, addresses", observed=member.address, expected=chosen[0].address,
                   cause="node-ip-wrong-interface", remedy="ray stop; ray start … --node-ip-address=%s" % chosen[0].address)  # fmt: skip


def _clusters(snapshot: Snapshot) -> Iterator[Finding]:
    """Nodes that joined different heads never see each other."""
    heads: Dict[Any, List[str]] = {}
    for name, raylets in snapshot.each(PROBE.id):
        for raylet in raylets[:1]:
            if raylet["gcs_address"]:
                heads.setdefault(raylet["gcs_address"], []).append(name)
    if len(heads) > 1:
        fewest = min(heads.values(), key=len)
        yield fail("the nodes have joined different Ray clusters: %s" % shared(heads), fewest[0] if len(fewest) == 1 else None,
                   source="/proc/PID/cmdline of the raylets", observed=heads, expected="one head for all", cause="ray-resources-infeasible",
                   remedy="on the others: ray stop; ray start --address=<the one head's address and port>")  # fmt: skip


def _placement(snapshot: Snapshot, alive: List[Member]) -> Iterator[Finding]:
    """Whether the plan's bundles, one GPU each, can ever be placed."""
    ranks = snapshot.plan.ranks
    total = sum(int(member.gpus) for member in alive)
    if ranks is None or ranks <= total:
        return
    missing = sorted(set(snapshot.nodes) - {member.name for member in alive})
    outside = "; %s did not join" % fold(missing) if missing else ""
    yield fail("the plan needs %s, Ray has %d on %s%s: no placement can satisfy it, and vLLM waits" % (counted(ranks, "GPU"), total, counted(len(alive), "node"), outside),
               source="Ray's node list, raylet", observed={member.name: member.gpus for member in alive}, expected=ranks, unit="GPUs",
               cause="ray-resources-infeasible", remedy="add nodes (ray start --address=…) or GPUs (--num-gpus), or plan %s: ray status" % counted(int(total), "rank"))  # fmt: skip


PROBE = Probe(
    "ray-cluster",
    "Ray counts the GPUs that are there, and the plan can be placed",
    judge,
    collect,
    needs=("gpus", "shm", "interfaces", "node-address", "nccl-environment", "nccl-conf-files", "nccl-library"),
)
