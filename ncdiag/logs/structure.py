"""What the structure of an NCCL log says, beyond single lines: networks, stages, missing and different ranks, GPUDirect, whether it came up.

Ranks of which a log has no line are not missing ranks: nobody may have kept their log. So they give a hint at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ncdiag.explain import Says, Signal
from ncdiag.logs.jobs import jobs
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import Communicator, Line, Link, NcclFacts, Process
from ncdiag.nodeset import ranks

_DECOY = re.compile(
    r"^(?:docker\d*|br-[0-9a-f]+|virbr\d+|veth|cni|flannel|cali|lxcbr|lxdbr|podman|kube-|tailscale|wg\d|tun\d)"
)
_PARTS = (
    ("socket", ("bootstrap-peer-unreachable", "socket-ifname-wrong", "bootstrap-blocked-firewall")),
    ("bootstrap", ("bootstrap-peer-unreachable", "socket-ifname-wrong", "rank-missing")),
    ("net_ib", ("ib-path-unreachable", "ib-qp-setup-failed", "roce-gid-wrong")),
    ("ibv", ("ib-qp-setup-failed", "rdma-unavailable", "roce-gid-wrong")),
    ("p2p", ("p2p-broken", "container-isolation", "cumem-failure")),
    ("shm", ("shm-too-small", "container-isolation", "cumem-failure")),
    ("nvls", ("nvls-multicast-failure", "fabric-manager-not-running")),
    ("mnnvl", ("imex-unavailable",)),
    ("alloc", ("gpu-memory-exhausted", "cumem-failure")),
    ("graph/", ("topology-file-error", "gpu-hardware-fault")),
)
"""Part of NCCL's source that warns -> what that usually is. Source: the tree of NCCL 2.18 to 2.32."""
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9a-f]*:[0-9a-f:]+")
_EARLY = frozenset({"none", "load", "interface", "network", "bootstrap"})


def signals(facts: NcclFacts, order: dict[str, float], several: bool = False) -> Iterator[Signal]:
    """`order`: source -> position of its first line over all sources. `several`: the job is known to run on several hosts."""
    for job in jobs(facts):
        yield from _of_job(_Look(job, order, several))


def _of_job(look: _Look) -> Iterator[Signal]:
    yield from look.versions()
    yield from look.interfaces()
    yield from look.networks()
    yield from look.gdr()
    yield from look.lonely()
    yield from look.stuck()
    yield from look.stranger()
    yield from look.peer_access()
    yield from look.devices()
    yield from look.failed()


class _Look:
    def __init__(self, facts: NcclFacts, order: dict[str, float], several: bool) -> None:
        self.facts = facts
        self._order = order
        self._several = several

    def at(self, line: Optional[Line]) -> tuple[list[Evidence], float]:
        if line is None:
            return [], 0.0
        return [Evidence(line.source, line.text.strip(), line.line)], self._order.get(line.source, 0.0) + line.line

    def _of(self, process: Process, *keys: str) -> Optional[Line]:
        for key in keys:
            if key in process.evidence:
                return process.evidence[key]
        return process.last

    def versions(self) -> Iterator[Signal]:
        """Ranks of one communicator with different NCCL versions of their own banner."""
        for comm in self.facts.communicators:
            found: dict[str, Process] = {}
            for rank in comm.ranks:
                process = self.facts.processes[rank.process]
                if process.version and process.version_own:
                    found.setdefault(process.version, process)
            if len(found) > 1:
                lines = [self.at(self._of(process, "version")) for process in found.values()]
                yield Signal(
                    "nccl-version-mismatch",
                    Says.STRONG,
                    "ranks of one communicator run NCCL " + " and ".join(sorted(found)),
                    [item for evidence, _ in lines for item in evidence],
                    order=min(o for _, o in lines),
                )
                return

    def interfaces(self) -> Iterator[Signal]:
        """An interface that only exists inside a host, on a job of several hosts."""
        hosts = {process.host for process in self.facts.processes if process.host}
        inside = self._of_one_host()
        between = [process for index, process in enumerate(self.facts.processes) if index not in inside]
        for process in between:
            name = process.bootstrap_interface or ""
            if _DECOY.match(name) and (len(hosts) > 1 or self._several_nodes()):
                evidence, order = self.at(self._of(process, "bootstrap"))
                others = {
                    p.bootstrap_interface
                    for p in self.facts.processes
                    if p.bootstrap_interface and p.bootstrap_interface != name
                }
                says = Says.STRONG if others or self._unfinished() else Says.HINT
                yield Signal(
                    "socket-ifname-wrong",
                    says,
                    f"NCCL on {process.host} uses {name} ({process.bootstrap_address}), which other hosts do not reach",
                    evidence,
                    {"node": process.host, "interface": name},
                    order=order,
                )
                return
        loopback = [process for process in between if (process.bootstrap_address or "").startswith("127.")]
        if loopback and (len(hosts) > 1 or self._several_nodes()):
            evidence, order = self.at(self._of(loopback[0], "bootstrap"))
            yield Signal(
                "socket-ifname-wrong",
                Says.STRONG,
                f"NCCL on {loopback[0].host} uses loopback for its bootstrap",
                evidence,
                {"node": loopback[0].host, "interface": loopback[0].bootstrap_interface},
                order=order,
            )

    def _of_one_host(self) -> set[int]:
        """Processes whose communicators have all their ranks, on one host: they do not need to be reached from others."""
        within: set[int] = set()
        between: set[int] = set()
        for comm in self.facts.communicators:
            members = {rank.process for rank in comm.ranks}
            hosts = {self.facts.processes[index].host for index in members}
            (within if 1 < comm.nranks == len(comm.ranks) and len(hosts) == 1 else between).update(members)
        return within - between

    def _several_nodes(self) -> bool:
        return any((rank.n_nodes or 0) > 1 for comm in self.facts.communicators for rank in comm.ranks)

    def _unfinished(self) -> bool:
        return any(rank.stage in _EARLY for comm in self.facts.communicators for rank in comm.ranks)

    def networks(self) -> Iterator[Signal]:
        """TCP sockets between nodes, and why."""
        sockets = [process for process in self.facts.processes if process.network == "Socket"]
        rdma = [process for process in self.facts.processes if process.network not in (None, "Socket")]
        uneven = self._uneven(sockets, rdma)
        if uneven is not None:
            one, other = uneven
            evidence, order = self.at(self._of(one, "network"))
            more, _ = self.at(self._of(other, "network"))
            yield Signal(
                "hca-mismatch-between-nodes",
                Says.STRONG,
                f"{one.host} uses sockets, {other.host} uses {other.network}",
                [*evidence, *more],
                {"node": one.host},
                order=order,
            )
        between = any(
            transport.startswith("NET/Socket")
            for comm in self.facts.communicators
            for transport in (comm.transports if rdma else comm.between_nodes)
        ) or (sockets and (self._several or self._several_nodes()))
        if sockets and uneven is None and between:
            process = sockets[0]
            why, key = self._why(process)
            evidence, order = self.at(self._of(process, key, "network"))
            more, _ = self.at(self._of(process, "network"))
            before, _ = self.at(self._of(rdma[0], "network")) if rdma else ([], 0.0)
            other_run = f"; another run here uses {rdma[0].network}" if rdma else ""
            yield Signal(
                "net-fallback-slow",
                Says.STRONG,
                "traffic between the nodes goes over TCP sockets" + (": " + why if why else "") + other_run,
                [*more, *[e for e in evidence if e not in more], *before],
                {"node": process.host},
                condition=True,
                order=order,
                remedy=f"compare the two runs (image, LD_LIBRARY_PATH, NCCL_NET, NCCL_IB_*, plug-in): what gives `Using network {rdma[0].network}` is missing in the slow one"
                if rdma
                else "",
            )

        yield from self._wanted(sockets)

    def _uneven(self, sockets: list[Process], rdma: list[Process]) -> Optional[tuple[Process, Process]]:
        """Two processes of one communicator on different networks. Where none says who belongs together: of different hosts, none of which uses both, as those of two runs do."""
        slow, fast = {id(process) for process in sockets}, {id(process) for process in rdma}
        if not (slow and fast):
            return None
        for comm in self.facts.communicators:
            mine = [self.facts.processes[rank.process] for rank in comm.ranks]
            ones = [process for process in mine if id(process) in slow]
            others = [process for process in mine if id(process) in fast]
            if ones and others:
                return ones[0], others[0]
        hosts = {process.host for process in sockets}
        if not hosts.isdisjoint(process.host for process in rdma):
            return None
        placed = {rank.process for comm in self.facts.communicators for rank in comm.ranks}
        known = {id(self.facts.processes[index]) for index in placed}
        pairs = ((one, other) for one in sockets for other in rdma if not (id(one) in known and id(other) in known))
        return next(pairs, None)

    def _wanted(self, sockets: list[Process]) -> Iterator[Signal]:
        """Processes on sockets that were meant to find RDMA devices and found none."""
        library = any(
            event.kind == "library-missing" and "ibverbs" in str(event.fields.get("library", ""))
            for event in self.facts.events
        )
        without = [process for process in sockets if process.ib_no_device or library]
        if not without:
            return
        process = without[0]
        meant = (
            any(name in process.settings for name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TC"))
            or process.settings.get("NCCL_IB_DISABLE", "").startswith("0")
            or any(re.search(r"RDMA|IBext|SHARP", name) for name in process.net_plugins)
        )
        bare = not meant and library and self._several_nodes()
        evidence, order = self.at(self._of(process, "ib_no_device", "network"))
        where = {"node": process.host}
        yield Signal(
            "rdma-unavailable",
            Says.STRONG if meant or bare else Says.HINT,
            f"NCCL on {process.host} finds no RDMA device"
            + (", although it is set up for one" if meant else "; that matters only where there should be one"),
            evidence,
            where,
            condition=True,
            order=order,
            candidates=("net-fallback-slow",) if bare else (),
        )

    def _why(self, process: Process) -> tuple[str, str]:
        if process.settings.get("NCCL_IB_DISABLE", "0").strip(". ") not in ("", "0"):
            return "NCCL_IB_DISABLE is set", "NCCL_IB_DISABLE"
        if process.settings.get("NCCL_NET", "").lower().startswith("socket"):
            return "NCCL_NET=Socket is set", "NCCL_NET"
        if any(
            event.kind == "library-missing" and "ibverbs" in str(event.fields.get("library", ""))
            for event in self.facts.events
        ):
            return "libibverbs cannot be opened", "network"
        if process.ib_no_device and "NCCL_IB_HCA" in process.settings:
            return f"no device is left by NCCL_IB_HCA={process.settings['NCCL_IB_HCA']}", "NCCL_IB_HCA"
        return ("no usable RDMA device was found", "ib_no_device") if process.ib_no_device else ("", "network")

    def gdr(self) -> Iterator[Signal]:
        """RDMA between nodes without GPUDirect."""
        for comm in self.facts.communicators:
            rdma = {
                name: count
                for name, count in comm.between_nodes.items()
                if name.startswith("NET/") and not name.startswith("NET/Socket")
            }
            if rdma and not any("GDRDMA" in name for name in rdma):
                link = next(
                    (
                        link
                        for rank in comm.ranks
                        for link in rank.links
                        if link.transport in rdma or link.transport.startswith("NET/")
                    ),
                    None,
                )
                evidence, order = self.at(link.at if link else None)
                yield Signal(
                    "gdr-disabled",
                    Says.STRONG,
                    "RDMA between the nodes runs without GPUDirect (no channel says GDRDMA)",
                    evidence,
                    condition=True,
                    order=order,
                )
                return
            if not any(_without_gdr(name) for name in comm.transports):
                continue
            with_gdr = self._hosts(comm, True)
            without = self._hosts(comm, False) - with_gdr
            if without and with_gdr:
                host = sorted(without)[0]
                link = next(
                    link for rank in comm.ranks if (rank.node or "") == host for link in rank.links if _rdma(link)
                )
                evidence, order = self.at(link.at)
                yield Signal(
                    "gdr-disabled",
                    Says.STRONG,
                    f"{', '.join(sorted(without)[:6])} uses RDMA without GPUDirect, the other nodes with it",
                    evidence,
                    {"node": host},
                    condition=True,
                    order=order,
                )
                return

    def _hosts(self, comm: Communicator, gdr: bool) -> set[str]:
        """Hosts with RDMA channels that use GPUDirect, or do not."""
        return {rank.node or "" for rank in comm.ranks for link in rank.links if _rdma(link) and link.gdr is gdr}

    def lonely(self) -> Iterator[Signal]:
        """Several processes on one host or job, each rank 0 of 1."""
        several = {source for comm in self.facts.communicators if comm.nranks > 1 for source in self._sources(comm)}
        ones = [comm for comm in self.facts.communicators if comm.nranks == 1 and comm.ranks]
        ones = [comm for comm in ones if several.isdisjoint(self._sources(comm))]
        processes = {comm.ranks[0].process for comm in ones}
        if len(processes) > 1:
            lines = [self.at(comm.ranks[0].stage_at) for comm in ones[:4]]
            yield Signal(
                "rank-layout-wrong",
                Says.STRONG,
                f"{len(processes)} processes are each rank 0 of 1: the launcher did not make one job of them",
                [item for evidence, _ in lines for item in evidence],
                order=min(o for _, o in lines),
            )

    def _sources(self, comm: Communicator) -> set[str]:
        return {source for rank in comm.ranks for source in self.facts.processes[rank.process].sources}

    def stuck(self) -> Iterator[Signal]:
        """The log ends inside the initialisation."""
        for comm in self.facts.communicators:
            early = [rank for rank in comm.ranks if rank.stage not in ("complete", "destroyed")]
            if not early or comm.nranks == 1:
                continue
            stages = "; ".join(f"{stage}: rank {who}" for stage, who in comm.stages.items())
            evidence, order = self.at(early[0].stage_at)
            summary = f"a communicator of {comm.nranks} ranks is not initialised ({stages})"
            if comm.missing:
                summary += f"; no line of rank {ranks(comm.missing)} is here"
            yield Signal(
                "", Says.SYMPTOM, summary, evidence, {"stage": early[0].stage}, order=order, candidates=self._fits(comm)
            )
            return

    def stranger(self) -> Iterator[Signal]:
        """Who closes a connection during the rendez-vous, while every rank is here, and none of them has that address."""
        known = {
            address
            for process in self.facts.processes
            for address in (
                process.bootstrap_address,
                process.oob_address,
                *(device.address for device in process.net_devices),
            )
            if address
        }
        for event in self.facts.events:
            peer = str(event.fields.get("peer") or event.fields.get("address") or "").partition("<")[0]
            if event.kind != "connection-closed" or not _ADDRESS.fullmatch(peer) or peer in known or not known:
                continue
            comms = [comm for comm in self.facts.communicators if any(r.process == event.process for r in comm.ranks)]
            if not comms or any(comm.missing or any(r.stage not in _EARLY for r in comm.ranks) for comm in comms):
                continue
            evidence, order = self.at(event.at)
            summary = f"{peer}, which is no address of any rank, connected to the rendez-vous of {event.host} and closed again"
            remedy = "find out what connects there (port scan, monitoring, a job that was restarted) and keep it off; NCCL 2.27.3 and later goes on after such a visit"
            for cause in ("framework-version-bug", "bootstrap-peer-unreachable"):
                yield Signal(
                    cause,
                    Says.HINT,
                    summary,
                    evidence,
                    {"node": event.host, "peer": peer},
                    order=order - 1.5,
                    remedy=remedy,
                )
            return

    def _fits(self, comm: Communicator) -> tuple[str, ...]:
        stages = {rank.stage for rank in comm.ranks}
        if "bootstrap" in stages:
            return ("rank-missing", "bootstrap-blocked-firewall", "socket-ifname-wrong")
        if "connect" in stages or "exchange" in stages:
            return ("ib-path-unreachable", "p2p-broken", "bootstrap-blocked-firewall")
        return ("rank-missing", "rank-stuck-outside-collective", "gpu-hardware-fault")

    def devices(self) -> Iterator[Signal]:
        """Different devices on the nodes, or devices of two fabrics in one process, in a job that is not healthy."""
        failed = any(event.kind in ("ib-completion-error", "ib-verbs-failed") for event in self.facts.events)
        troubled = (
            failed
            or any(event.kind == "propagation" for event in self.facts.events)
            or any(
                rank.stage not in ("complete", "destroyed") for comm in self.facts.communicators for rank in comm.ranks
            )
        )
        with_devices = [
            process for process in self.facts.processes if process.net_devices and process.net_devices[0].link
        ]
        for process in with_devices:
            links = {device.link for device in process.net_devices if device.link}
            if len(links) > 1 and troubled:
                evidence, order = self.at(self._of(process, "net_devices"))
                yield Signal(
                    "mixed-hca-fabrics",
                    Says.STRONG if failed else Says.HINT,
                    f"{process.host} uses InfiniBand and RoCE devices together",
                    evidence,
                    {"node": process.host},
                    order=order + 0.5,
                    remedy="name the devices of one fabric on all nodes: NCCL_IB_HCA==mlx5_0,mlx5_1…",
                )
                break
        counts: dict[int, Process] = {}
        for process in with_devices:
            counts.setdefault(len(process.net_devices), process)
        if len(counts) > 1:
            some = list(counts.values())[:2]
            lines = [self.at(self._of(process, "net_devices")) for process in some]
            fewer = min(some, key=lambda p: len(p.net_devices))
            absent = _absent(fewer) if not any(_absent(process) for process in some if process is not fewer) else []
            ignored = any("NCCL_IGNORE_NET_MISMATCH" in process.settings for process in with_devices)
            yield Signal(
                "hca-mismatch-between-nodes",
                Says.STRONG if absent or ignored or (not troubled and self._together(some)) else Says.HINT,
                " and ".join(f"{process.host} uses {len(process.net_devices)} RDMA devices" for process in some)
                + (f": it has no {', '.join(absent)} of NCCL_IB_HCA" if absent else ""),
                [item for evidence, _ in lines for item in evidence],
                {"node": fewer.host},
                condition=not troubled,
                order=min(o for _, o in lines),
            )

    def _together(self, some: list[Process]) -> bool:
        """Whether processes are of one communicator in which every host has as many ranks."""
        for comm in self.facts.communicators:
            mine = [self.facts.processes[rank.process] for rank in comm.ranks]
            hosts = [process.host for process in mine]
            if all(process in mine for process in some) and len({hosts.count(host) for host in hosts}) == 1:
                return True
        return False

    def failed(self) -> Iterator[Signal]:
        """A warning of NCCL that no reader knows, followed by the way that its error took upwards."""
        for event in self.facts.events:
            if event.kind == "warning" and any(
                other.kind == "propagation" and other.process == event.process for other in self.facts.events
            ):
                evidence, order = self.at(event.at)
                names = next((names for part, names in _PARTS if part in (event.code or "")), _PARTS[0][1])
                yield Signal(
                    "",
                    Says.SYMPTOM,
                    f"NCCL gives up: {event.message[:160]}",
                    evidence,
                    {"node": event.host},
                    order=order,
                    candidates=names,
                )
                return

    def peer_access(self) -> Iterator[Signal]:
        """All ranks are up and only peer memory joins them: if it hangs afterwards, that is the first suspect."""
        for comm in self.facts.communicators:
            if (
                comm.nranks < 2
                or comm.between_nodes
                or any(name.startswith("NET/") for name in comm.transports)
                or not comm.ranks
                or len({rank.process for rank in comm.ranks}) < 2
            ):
                continue
            transports = set(comm.transports)
            legacy = [name for name in transports if name.startswith("P2P/IPC")]
            if (
                legacy
                and all(rank.stage == "complete" for rank in comm.ranks)
                and not any(rank.nvls for rank in comm.ranks)
            ):
                link = next(
                    (link for rank in comm.ranks for link in rank.links if link.transport.startswith("P2P/IPC")), None
                )
                evidence, order = self.at(link.at if link else comm.ranks[0].stage_at)
                yield Signal(
                    "p2p-broken",
                    Says.HINT,
                    "initialised; the GPUs use peer access among each other. If the first collective hangs, peer access does not work here",
                    evidence,
                    condition=True,
                    order=order,
                )
                return


def _absent(process: Process) -> list[str]:
    """Names that its NCCL_IB_HCA lists and that it does not use."""
    wanted = process.settings.get("NCCL_IB_HCA", "")
    names = [name.partition(":")[0] for name in wanted.lstrip("=").split(",")] if not wanted.startswith("^") else []
    have = [device.name for device in process.net_devices]
    return [name for name in names if name and not any(device.startswith(name) for device in have)]


def _without_gdr(transport: str) -> bool:
    """Whether a transport, as communicators count them, is RDMA without GPUDirect."""
    return transport.startswith("NET/") and not transport.startswith("NET/Socket") and "/GDRDMA" not in transport


def _rdma(link: Link) -> bool:
    return link.transport.startswith("NET/") and not link.transport.startswith("NET/Socket")


def initialised(facts: NcclFacts) -> Optional[Line]:
    """The line that shows the last of all communicators complete; None when one is not, or none is there."""
    ranks = [rank for comm in facts.communicators for rank in comm.ranks]
    if any(rank.stage not in ("complete", "destroyed") for rank in ranks):
        return None
    return next((rank.stage_at for rank in reversed(ranks) if rank.stage_at), None)
