"""What an NCCL log says, as plain data: the dataclasses that `ncdiag.nccl.log.NcclLog.finish()` returns.

Everything is JSON-able through `NcclFacts.to_json()`. None means: the log does not say. Lists are in order of appearance, ranks by number.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

TEXT_LIMIT = 500  # characters of a line that are kept as evidence

# How far one rank is in the initialisation of one communicator, in order.
# value: who it may be waiting for there: "nobody" (its own driver, disk, fabric), "node" (ranks of its node), "all" (every rank), "peers".
STAGES: Dict[str, str] = {
    "none": "nobody",  # nothing from NCCL
    "load": "nobody",  # environment read, driver library loaded
    "interface": "nobody",  # the bootstrap interface is chosen, the banner may be printed
    "network": "nobody",  # network plugins and verbs devices are being opened, CUDA contexts made
    "bootstrap": "all",  # rendez-vous: every rank must reach the root over TCP; NCCL has no time limit here
    "peers": "all",  # all ranks met; they exchange who they are
    "topology": "node",  # PCI, NVLink and NICs are read (2.21 and later: ranks of one node exchange what they see)
    "graph": "nobody",  # rings and trees are searched, on the CPU
    "exchange": "all",  # the second exchange among all ranks is done, channels are being set up
    "connect": "peers",  # connections to the neighbours are made
    "tuning": "node",  # connected; last local steps
    "complete": "nobody",  # initialised. With lazy connect (2.22 and later) the network may not have been used yet
    "destroyed": "nobody",  # destroyed or aborted
}


@dataclass
class Line:
    """Where something was read. `text` is the line as it stands in the file, without colours, at most TEXT_LIMIT characters."""

    source: str
    line: int  # 1 is the first
    text: str


@dataclass
class Event:
    """An error or a remarkable line. The kinds and their fields are listed in `ncdiag.nccl.events`."""

    kind: str
    level: str  # WARN ATTN INFO …, as printed
    message: str  # without the prefix, at most TEXT_LIMIT characters
    at: Line  # the first time
    fields: Dict[str, Any] = field(default_factory=dict)
    host: Optional[str] = None
    pid: Optional[int] = None
    tid: Optional[int] = None
    rank: Optional[int] = None  # in `communicator`; None: the process has no rank yet, or several
    communicator: Optional[int] = None  # index in NcclFacts.communicators
    process: Optional[int] = None  # index in NcclFacts.processes
    code: Optional[str] = None  # NCCL's own file:line, "misc/socket.cc:484"
    time: Optional[str] = None  # the time in front of the line, as printed
    secondary: bool = False  # NCCL's wording says it follows from another error (propagation, flush, closed by a peer)
    count: int = 1  # how often this process said it (same kind, same fields)
    last_line: int = 0  # line of the last time


@dataclass
class NetDevice:
    """One entry of `NET/IB : Using [0]mlx5_0:1/RoCE` or `NET/Socket : Using [0]eth0:10.0.0.1<0>`."""

    index: int
    name: str
    port: Optional[int] = None
    link: Optional[str] = None  # IB, RoCE; None for sockets
    address: Optional[str] = None  # sockets only
    speed_mbits_s: Optional[int] = None
    gdr: Optional[bool] = None  # "GPU Direct RDMA Enabled/Disabled for HCA": the driver's capability


@dataclass
class Process:
    """One process (host, pid) that NCCL runs in. `host` and `pid` are None where the log was cut down to bare messages."""

    host: Optional[str]
    pid: Optional[int]
    sources: List[str] = field(default_factory=list)
    label: Dict[str, Any] = field(default_factory=dict)  # what a launcher put in front: {"by": "mpirun", "rank": 3}
    version: Optional[str] = None  # "2.21.5"
    version_own: bool = False  # False: taken over from a banner that another process of this log printed
    cuda: Optional[str] = None  # CUDA NCCL was built with, "12.4"
    git: Optional[str] = None
    cuda_driver: Optional[int] = None  # 12040
    settings: Dict[str, str] = field(default_factory=dict)  # NCCL_* that it read from environment or nccl.conf
    bootstrap_interface: Optional[str] = None
    bootstrap_address: Optional[str] = None
    network: Optional[str] = None  # "IB", "Socket", "Libfabric" …
    net_devices: List[NetDevice] = field(default_factory=list)
    virtual_devices: List[str] = field(
        default_factory=list
    )  # merged NICs, "8:mlx5_0+mlx5_1"; channel lines count these (2.24 and later, subsystem NET)
    ras_address: Optional[str] = None  # where its RAS service listens, "127.0.0.1:28028" (2.24 and later)
    oob_interface: Optional[str] = None
    oob_address: Optional[str] = None
    relaxed_ordering: Optional[bool] = None
    net_plugins: List[str] = field(default_factory=list)  # loaded external ones, "Libfabric (v9)"
    initialized: List[str] = field(default_factory=list)  # "Initialized NET plugin X" (2.27 and later)
    failed: List[str] = field(default_factory=list)  # "Failed to initialize NET plugin X" (2.28 and later)
    ib_no_device: bool = False  # "NET/IB : No device found."
    dmabuf: List[int] = field(default_factory=list)  # GPU devices with DMA-BUF
    gdr_for_gpu: Dict[str, int] = field(
        default_factory=dict
    )  # per-GPU decisions before 2.30: {"enabled": n, "disabled": n}
    gdr_distances: List[Dict[str, Any]] = field(default_factory=list)  # the disabled ones: hca, distance, limit
    gid_indexes: List[int] = field(default_factory=list)  # GID indexes in use (subsystem NET)
    qp_mtus: List[int] = field(default_factory=list)  # bytes (subsystem NET)
    lines: int = 0  # NCCL lines
    stage: str = "none"  # of the initialisation that has not got a communicator yet, else of its least advanced one
    last: Optional[Line] = None  # its last NCCL line
    first: Optional[Line] = None
    evidence: Dict[str, Line] = field(
        default_factory=dict
    )  # where it was read: "bootstrap", "network", "net_devices", "NCCL_IB_HCA" …


@dataclass
class Link:
    """Channels of one rank to one peer over one transport."""

    peer: int
    direction: str  # "send" or "receive"
    transport: str  # "P2P/CUMEM", "SHM/direct", "NET/IB", "NET/Socket", "COLLNET/SHARP" …
    device: Optional[int] = None  # network device index
    gdr: bool = False
    shared: bool = False
    proxy_rank: Optional[int] = None  # PXN: through this rank's GPU
    flags: str = ""  # what else stood behind: "/read", "(PCI)"
    channels: int = 0  # lines; one a channel and connection
    p2p: bool = False  # connection 1: send/recv instead of collectives
    at: Optional[Line] = None


@dataclass
class Rank:
    """One rank of one communicator."""

    rank: int
    process: int  # index in NcclFacts.processes
    pointer: Optional[str] = None  # comm 0x…, in its process
    cuda_dev: Optional[int] = None
    nvml_dev: Optional[int] = None
    bus_id: Optional[str] = None
    node: Optional[str] = None  # host
    n_nodes: Optional[int] = None  # as NCCL counts
    local_rank: Optional[int] = None
    local_ranks: Optional[int] = None
    mnnvl: Optional[bool] = None
    nvls: Optional[bool] = None  # multicast available
    nvls_used: bool = False  # its buffers are set up, or its tree is connected
    stage: str = "none"
    stage_at: Optional[Line] = None  # the line that proves it
    lazy_connect: bool = False  # channels were connected after Init COMPLETE
    connected: bool = False  # "Connected all rings" or "all trees" was seen
    ring_gdr: Optional[bool] = None  # "use ring PXN x GDR y" (2.24 and later)
    ring_pxn: Optional[bool] = None
    coll_channels: Optional[int] = None
    nvls_channels: Optional[int] = None
    p2p_channels: Optional[int] = None
    net_device_count: Optional[int] = None  # "Rank r: n Net devices" (2.30.3 and later)
    trees: str = ""  # NCCL's words, "[0] 1/8/-1->0->-1 [1] …": channel, three ranks below, this one, the one above; `transports.branches` reads it
    bootstrap_s: Dict[str, float] = field(default_factory=dict)  # total create send recv ring delay
    timings_s: Dict[str, float] = field(
        default_factory=dict
    )  # total kernels alloc bootstrap allgathers topo graphs connections rest
    links: List[Link] = field(default_factory=list)
    links_left_out: int = 0  # kinds of link beyond the limit kept
    op_count: Optional[int] = None  # last opCount (subsystem COLL)
    last_op: Optional[str] = None
    errors: int = 0  # events of this rank that are neither secondary nor harmless


@dataclass
class Ring:
    """The order of the ranks in one ring, and the channels that use it."""

    order: str  # folded, "0-7,15-8"
    channels: List[int] = field(default_factory=list)


@dataclass
class Communicator:
    """The ranks that initialised one communicator together."""

    index: int
    nranks: int
    comm_id: Optional[str] = None  # 0x…, equal on all ranks; None: not printed (before 2.18, splits before 2.31)
    call: Optional[str] = None  # ncclCommInitRank, ncclCommSplit …
    parent: Optional[int] = None  # index
    color: Optional[int] = None
    ranks: List[Rank] = field(default_factory=list)
    missing: List[int] = field(
        default_factory=list
    )  # ranks of which this log has no line. Not read is not the same as not started
    stages: Dict[str, str] = field(default_factory=dict)  # stage -> folded ranks
    culprits: List[int] = field(default_factory=list)  # the ranks that hold up the others
    reason: str = ""  # why these, or why nobody can be named
    transports: Dict[str, int] = field(default_factory=dict)  # "NET/IB/GDRDMA" -> links; "NVLS" -> ranks that use it
    between_nodes: Dict[str, int] = field(default_factory=dict)  # the same for links whose ends are on different hosts
    rings: List[Ring] = field(default_factory=list)
    spread: Dict[str, Dict[str, str]] = field(
        default_factory=dict
    )  # version, interface, network, devices, settings: value -> ranks


@dataclass
class Source:
    """One fed file or stream."""

    name: str
    lines: int = 0
    size_bytes: int = 0
    cut_lines: int = 0  # lines longer than the limit, of which only the beginning was read
    joined_lines: int = 0  # lines in which two records stood
    ray_repeated: int = 0  # records Ray folded ("repeated 7x across cluster"): other ranks said them too, unseen here


@dataclass
class NcclFacts:
    """Everything an NCCL log says."""

    processes: List[Process] = field(default_factory=list)
    communicators: List[Communicator] = field(default_factory=list)
    events: List[Event] = field(default_factory=list)
    sources: List[Source] = field(default_factory=list)
    versions: List[str] = field(default_factory=list)
    events_left_out: int = 0
    unplaced: List[Rank] = field(
        default_factory=list
    )  # who speaks in channel lines of processes whose initialisation this log does not hold: rank, process, node and links only
    notes: List[str] = field(
        default_factory=list
    )  # what limits this reading: folded lines, cut lines, missing subsystems

    def to_json(self) -> Dict[str, Any]:
        """The same as dicts and lists."""
        return dataclasses.asdict(self)
