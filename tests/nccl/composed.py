"""NCCL logs as the versions print them, composed for the tests: `lines(version, …)` is what one rank says, without prefix."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

VERSIONS = [
    (2, 18, 3), (2, 19, 3), (2, 20, 5), (2, 21, 5), (2, 22, 3), (2, 23, 4), (2, 24, 3), (2, 25, 1), (2, 26, 2), (2, 27, 3), (2, 28, 3), (2, 28, 9),
    (2, 29, 2), (2, 30, 3), (2, 30, 7), (2, 31, 2), (2, 32, 3),
]  # fmt: skip
STAGES = (
    "interface",
    "network",
    "bootstrap",
    "peers",
    "topology",
    "graph",
    "exchange",
    "connect",
    "tuning",
    "complete",
)
Version = Tuple[int, int, int]


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _begin(v: Version, address: str, settings: Dict[str, str]) -> Iterator[Tuple[str, str]]:
    for name, value in settings.items():
        yield "interface", f"{name} set by environment to {value}" + ("." if value.lstrip("-").isdigit() else "")
    yield "interface", f"Bootstrap{' ' if v < (2, 24) else ''}: Using eth0:{address}<0>"
    yield "interface", "cudaDriverVersion 12040"
    if v >= (2, 22):
        yield "interface", f"NCCL version {dotted(v)}+cuda12.4"
    if v >= (2, 29):
        yield "interface", "NCCL git version stable b81d6a5a3"
    if v < (2, 19):
        yield "network", "NET/Plugin : No plugin found, using internal implementation"
    elif v < (2, 22):
        yield (
            "network",
            "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file No plugin found (libnccl-net.so), using internal implementation",
        )
    else:
        yield "network", "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."
    yield "network", f"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:{address}<0>"
    if v >= (2, 28):
        yield "network", "Initialized NET plugin IB"
    early = v >= (2, 23)
    yield ("network" if early else "bootstrap"), "Using network IB"


def _start(v: Version, name: str) -> str:
    if v < (2, 21):
        return f"{name} - Init START"
    return ("[Rank 0] " if v >= (2, 29) else "") + f"ncclCommInitRank {name} - Init START"


def lines(
    v: Version, rank: int, nranks: int, address: str, pointer: str = "", settings: Optional[Dict[str, str]] = None
) -> List[Tuple[str, str]]:
    """(stage this line proves, message) of one rank of a two-rank-a-node communicator, in the order of its version."""
    dev, peer = rank % 2, (rank + 1) % nranks
    pointer = pointer or f"0x55d0c0ffee{rank:02x}"
    name = f"comm {pointer} rank {rank} nranks {nranks} cudaDev {dev} nvmlDev {dev} busId {0x18000 + dev * 0x1000:x} commId 0xfeedc0de12345678"
    said = list(_begin(v, address, settings or {}))
    if v >= (2, 23):
        said.append(("bootstrap", _start(v, name)))
        said.append(
            (
                "peers",
                "Bootstrap timings total 0.512345 (create 0.000034, send 0.000171, recv 0.500005, ring 0.012003, delay 0.000000)",
            )
        )
    else:
        said.append(("peers", _start(v, name)))
    if v < (2, 28):
        said.append(("topology", f"Setting affinity for GPU {dev} to ffff"))
    else:
        said.append(
            (
                "topology",
                f"ncclTopoGetCpuAffinity: Affinity for GPU {dev} is 0-15. (GPU affinity = 0-15 ; CPU affinity = 0-127).",
            )
        )
    nvls = (
        ""
        if v < (2, 27) or (2, 30, 3) <= v < (2, 32)
        else (" (NVLS_NCHANNELS 16)" if v < (2, 30, 3) else ", transport NVLink, symmetric multimem 1")
    )
    said.append(("topology", f"NVLS multicast support is available on dev {dev}{nvls}"))
    said.append(("graph", "Pattern 4, crossNic 0, nChannels 2, bw 22.000000/22.000000, type NVL/PIX, sameChannels 0"))
    if v >= (2, 20):
        said.append(
            (
                "exchange",
                f"comm {pointer} rank {rank} nRanks {nranks} nNodes {nranks // 2} localRanks 2 localRank {dev} MNNVL 0",
            )
        )
    if rank == 0:
        said += [
            ("connect", f"Channel {channel:02}/02 : " + " ".join(f"{number:4}" for number in range(nranks)))
            for channel in range(2)
        ]
    up = rank - 1
    said.append(
        ("connect", f"Trees [0] {peer if rank + 1 < nranks else -1}/-1/-1->{rank}->{up} [1] -1/-1/-1->{rank}->{up}")
    )
    said.append(("connect", "P2P Chunksize set to 131072"))
    said += [("connect", message) for message in _channels(rank, nranks)]
    said.append(("tuning", "Connected all rings" + (", use ring PXN 0 GDR 1" if v >= (2, 24) else "")))
    said.append(("tuning", "Connected all trees"))
    said.append(("tuning", "threadThresholds 8/8/64 | 32/8/64 | 512 | 512"))
    collnet = "2 collnet channels, " if v >= (2, 20) else ""
    said.append(("tuning", f"2 coll channels, {collnet}16 nvls channels, 2 p2p channels, 2 p2p channels per peer"))
    said.append(("complete", ("" if v < (2, 21) else "ncclCommInitRank ") + f"{name} - Init COMPLETE"))
    if v >= (2, 22):
        head = "Init timings:" if v < (2, 23) else "Init timings - ncclCommInitRank:"
        alloc = "" if v < (2, 23) else "alloc 1.12, "
        said.append(
            (
                "complete",
                f"{head} rank {rank} nranks {nranks} total 2.13 (kernels 0.22, {alloc}bootstrap 0.51, allgathers 0.02, topo 0.06, graphs 0.01, connections 0.19, rest 0.00)",
            )
        )
    return said


def _channels(rank: int, nranks: int) -> Iterator[str]:
    there, back, dev = (rank + 1) % nranks, (rank - 1) % nranks, rank % 2
    for channel in range(2):
        if there // 2 == rank // 2:
            yield f"Channel {channel:02}/0 : {rank}[{dev}] -> {there}[{there % 2}] via P2P/CUMEM/read"
        else:
            yield f"Channel {channel:02}/0 : {rank}[{dev}] -> {there}[{there % 2}] [send] via NET/IB/{dev}/GDRDMA"
        if back // 2 != rank // 2:
            yield f"Channel {channel:02}/0 : {back}[{back % 2}] -> {rank}[{dev}] [receive] via NET/IB/{dev}/GDRDMA"


def prefix(rank: int) -> str:
    """HOST:PID:TID [DEV] of a rank, two ranks a node."""
    return f"node{rank // 2 + 1:02}:{4000 + rank}:{4100 + rank} [{rank % 2}] NCCL INFO "


def job(
    v: Version,
    nranks: int = 4,
    until: Optional[Dict[int, str]] = None,
    settings: Optional[Dict[int, Dict[str, str]]] = None,
) -> List[str]:
    """All ranks, line by line in turn; a rank in `until` stops after the last line of that stage."""
    until = until or {}
    streams = []
    for rank in range(nranks):
        last = STAGES.index(until.get(rank, "complete"))
        said = lines(v, rank, nranks, f"192.0.2.{rank // 2 + 1}", settings=(settings or {}).get(rank))
        streams.append([prefix(rank) + message for stage, message in said if STAGES.index(stage) <= last])
    woven = [stream[index] for index in range(max(map(len, streams))) for stream in streams if index < len(stream)]
    return ([f"NCCL version {dotted(v)}+cuda12.4"] if v < (2, 22) else []) + woven
