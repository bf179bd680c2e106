"""How fast, and with how much memory, NCCL logs are read: python benchmarks/nccl_log.py [--ranks 1024] [--repeat 1] [--graph] [--keep FILE]

Makes the log that `NCCL_DEBUG=INFO` of NCCL 2.27 gives for a sharded engine on that many GPUs, 8 a node, all on one standard output, where a
launcher mixes the ranks in bursts of 1 to 24 lines in random order. Each rank says its environment and network and initialises what an engine
does: a world communicator (16 channels), two of its node (tensor parallel, 24 channels, P2P) and one across nodes (data parallel, 16 channels,
NET/IB), all with ring and trees; `--repeat` makes them several times. That is the default NCCL_DEBUG_SUBSYS; `--graph` adds the lines of the
subsystems GRAPH and NET; `--prefix` puts a launcher's words in front of every line. Then, in the same run, in processor time (user and system), each
the best of several on a warm page cache:

- `grep -c 'NCCL INFO' FILE` (in the locale of the shell);
- ncdiag.nccl.log: the whole way from the file to NcclFacts, in a process of its own, one core, with its peak resident memory; and the share of
  the time that is reading alone (without putting the facts together at the end). Once more over the file five times in a row: five times the
  lines of the same ranks, whose peak memory shows whether it grows with the log;
- ncdiag.logs.diagnose: the same and all rules and readers of `ncdiag diagnose`, without the start of Python; and the whole command.

Results of runs stand in benchmarks/nccl-log.md.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
from typing import Dict, Iterator, List, TextIO

NODE = 8
SETTINGS = {
    "NCCL_SOCKET_IFNAME": "bond0",
    "NCCL_IB_GID_INDEX": "3.",
    "NCCL_IB_TC": "106.",
    "NCCL_IB_TIMEOUT": "22.",
    "NCCL_IB_RETRY_CNT": "7.",
    "NCCL_IB_QPS_PER_CONNECTION": "4.",
    "NCCL_NET_GDR_LEVEL": "PHB",
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV",
    "NCCL_CROSS_NIC": "0.",
    "NCCL_NVLS_ENABLE": "1.",
}


def start(rank: int) -> Iterator[str]:
    """What a process says before its first communicator."""
    address = f"10.77.{rank // NODE // 250}.{rank // NODE % 250 + 1}"
    yield "cudaDriverVersion 12080"
    for name, value in SETTINGS.items():
        yield f"{name} set by environment to {value}"
    yield f"Bootstrap: Using bond0:{address}<0>"
    yield "NCCL version 2.27.3+cuda12.8"
    yield "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."
    yield "NCCL_IB_HCA set to mlx5"
    devices = " ".join(f"[{index}]mlx5_{index}:1/RoCE" for index in range(NODE))
    yield f"NET/IB : Using {devices} [RO]; OOB bond0:{address}<0>"
    yield "PROFILER/Plugin: Could not find: libnccl-profiler.so. "
    yield "Initialized NET plugin IB"


class Group:
    """A communicator's ranks: every `stride`-th global rank, from that of `rank` on."""

    def __init__(self, number: int, rank: int, size: int, stride: int, channels: int) -> None:
        self.number, self.size, self.stride, self.channels = number, size, stride, channels
        self.rank = rank // stride % size
        self.first = rank - self.rank * stride

    def dev(self, member: int) -> int:
        return (self.first + member % self.size * self.stride) % NODE

    def node(self, member: int) -> int:
        return (self.first + member % self.size * self.stride) // NODE


def groups(rank: int, ranks: int) -> List[Group]:
    """World, tensor parallel twice (the framework's and the engine's), data parallel."""
    return [
        Group(0, rank, ranks, 1, 16),
        Group(1, rank, NODE, 1, 24),
        Group(2, rank, NODE, 1, 24),
        Group(3, rank, ranks // NODE, NODE, 16),
    ]


def communicator(group: Group, turn: int, host_rank: int, graph: bool) -> Iterator[str]:
    """What one rank says while it initialises one communicator."""
    rank, nranks, dev, channels = group.rank, group.size, group.dev(group.rank), group.channels
    local = NODE if group.stride == 1 else 1
    pointer, comm_id = (
        f"0x7f{host_rank:06x}{turn:02x}{group.number:02x}",
        f"0x{0xC0FFEE000000 + group.first * 65536 + turn * 256 + group.number:x}",
    )
    name = f"comm {pointer} rank {rank} nranks {nranks} cudaDev {dev} nvmlDev {dev} busId {0x18000 + dev * 0x1000:x} commId {comm_id}"
    yield "Assigned NET plugin IB to comm"
    yield "Using network IB"
    yield f"DMA-BUF is available on GPU device {dev}"
    yield f"ncclCommInitRankConfig {name} - Init START"
    yield f"Bootstrap timings total {rank % 7 / 100 + 0.9:.6f} (create 0.000034, send 0.000171, recv 0.{rank % 97:06}, ring 0.012003, delay 0.000000)"
    yield f"NVLS multicast support is available on dev {dev} (NVLS_NCHANNELS 16)"
    yield f"Setting affinity for GPU {dev} to ffff,ffffffff,00000000,0000ffff,ffffffff"
    yield f"comm {pointer} rank {rank} nRanks {nranks} nNodes {max(1, nranks // local)} localRanks {local} localRank {dev % local} MNNVL 0"
    if rank == 0:
        order = " ".join(f"{number:4}" for number in range(nranks))
        yield from (f"Channel {channel:02}/{channels} : {order}" for channel in range(channels))
    yield "Trees " + " ".join(
        f"[{c}] {rank + 1 if dev < 7 else -1}/{rank + 8 if dev == c % 8 else -1}/-1->{rank}->{rank - 1}"
        for c in range(channels)
    )
    yield "P2P Chunksize set to 131072"
    yield f"[Proxy Service] Device {dev} CPU core {host_rank % 96}"
    yield "Check P2P Type isAllDirectP2p 1 directMode 0"
    if graph:
        yield from graph_lines(group)
    yield from connections(group)
    if graph:
        yield from queue_pairs(group)
    yield "Connected all rings, use ring PXN 0 GDR 1"
    yield "Connected all trees"
    yield "threadThresholds 8/8/64 | 8192/8/64 | 512 | 512"
    yield f"{channels} coll channels, {channels} collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer"
    yield "CC Off, workFifoBytes 1048576"
    yield f"ncclCommInitRankConfig {name} - Init COMPLETE"
    yield (
        f"Init timings - ncclCommInitRankConfig: rank {rank} nranks {nranks} total 4.{rank % 100:02} (kernels 0.31, alloc 1.12, bootstrap 0.{rank % 90:02}, "
        "allgathers 0.04, topo 0.61, graphs 0.20, connections 1.44, rest 0.02)"
    )


def connections(group: Group) -> Iterator[str]:
    """Ring and tree: to the neighbours in the node over P2P; where a channel leaves the node, over the NIC of one GPU."""
    rank, nranks = group.rank, group.size
    dev, local = group.dev(rank), NODE if group.stride == 1 else 1
    for step in (1, 1, -1):
        for channel in range(group.channels):
            leaves = nranks > local and (local == 1 or channel % NODE == dev)
            far = step * local
            if leaves:
                there, back = (rank + far) % nranks, (rank - far) % nranks
                yield f"Channel {channel:02}/0 : {back}[{group.dev(back)}] -> {rank}[{dev}] [receive] via NET/IB/{dev}/GDRDMA"
                yield f"Channel {channel:02}/0 : {rank}[{dev}] -> {there}[{group.dev(there)}] [send] via NET/IB/{dev}/GDRDMA"
            elif group.node(rank + step) == group.node(rank) and 0 <= rank + step < nranks:
                yield f"Channel {channel:02}/0 : {rank}[{dev}] -> {rank + step}[{group.dev(rank + step)}] via P2P/CUMEM/read"


def graph_lines(group: Group) -> Iterator[str]:
    """Subsystem GRAPH: topology, paths, the search's result, rings and trees."""
    rank, channels = group.rank, group.channels
    yield "=== System : maxBw 48.0 totalBw 370.8 ==="
    for cpu in (0, 1):
        yield f"CPU/0-{cpu} (1/1/2)"
        for slot in range(NODE // 2):
            gpu = cpu * NODE // 2 + slot
            yield f"+ PCI[48.0] - PCI/0-{gpu * 0x10000 + 0x15000:x} (1000c030100010db)"
            yield f"              + PCI[48.0] - GPU/0-{gpu * 0x10000 + 0x18000:x} ({group.first + gpu})"
            yield "                            + NVL[370.8] - NVS/0-0"
            yield f"              + PCI[48.0] - NIC/0-{gpu * 0x10000 + 0x19000:x}"
            yield f"                            + NET[50.0] - NET/0-{gpu} (0/{gpu}/50.0)"
    yield "=========================================="
    for gpu in range(NODE):
        paths = " ".join(f"GPU/0-{peer * 0x10000 + 0x18000:x} (2/370.8/NVL)" for peer in range(NODE))
        yield f"GPU/0-{gpu * 0x10000 + 0x18000:x} :{paths} NVS/0-0 (1/370.8/NVL) CPU/0-0 (3/48.0/PHB) NET/0-{gpu} (3/48.0/PIX)"
    yield f"Pattern 4, crossNic 0, nChannels {channels}, bw 22.000000/22.000000, type NVL/PIX, sameChannels 0"
    for channel in range(channels):
        yield (
            f" {channel} : NET/0-{channel % NODE} "
            + " ".join(f"GPU/0-{peer * 0x10000 + 0x18000:x}" for peer in range(NODE))
            + f" NET/0-{channel % NODE}"
        )
    for channel in range(channels):
        yield f"Ring {channel:02} : {rank - 1} -> {rank} -> {rank + 1}"


def queue_pairs(group: Group) -> Iterator[str]:
    """Subsystem NET: one line a queue pair."""
    if group.stride != 1 or group.size > NODE:
        dev = group.dev(group.rank)
        for channel in range(8):
            yield (
                f"NET/IB: NCCL Dev {dev} IbDev {dev} Port 1 qpn {group.first * 64 + channel + 1000} mtu 5 GID 3 (0/{channel:X}0A4D0001FFFF0000) "
                f"fifoRkey=0x{group.first + channel:x} fifoLkey=0x{group.first + channel:x}"
            )


PREFIXES: Dict[str, str] = {
    "": "",
    "kubernetes": "2026-11-29T16:{minute:02}:{second:02}.{fraction:09}Z stdout F ",
    "ray": "\x1b[36m(RayWorkerWrapper pid={pid}, ip=192.0.2.1)\x1b[0m ",
}


def write(path: pathlib.Path, ranks: int, repeat: int, graph: bool) -> None:
    """The log, ranks interleaved in random order, each rank's own lines in order."""
    chance = random.Random(1)
    prefixes = [
        f"gpu{rank // NODE + 1:04}:{20000 + rank % NODE}:{21000 + rank % NODE} [{rank % NODE}] NCCL INFO "
        for rank in range(ranks)
    ]
    with path.open("w") as file:
        for turn in range(repeat):
            streams = [
                itertools.chain(
                    start(rank) if turn == 0 else (),
                    *(communicator(group, turn, rank, graph) for group in groups(rank, ranks)),
                )
                for rank in range(ranks)
            ]
            alive = list(range(ranks))
            while alive:
                chance.shuffle(alive)
                alive = [rank for rank in alive if _burst(file, prefixes[rank], streams[rank], chance.randint(1, 24))]


def _burst(file: TextIO, prefix: str, stream: Iterator[str], count: int) -> bool:
    lines = list(itertools.islice(stream, count))
    file.writelines(f"{prefix}{line}\n" for line in lines)
    return len(lines) == count


def prefixed(path: pathlib.Path, form: str) -> None:
    """Put a launcher's words in front of every line of the log."""
    other = path.with_suffix(".prefixed")
    with path.open() as old, other.open("w") as new:
        for number, line in enumerate(old):
            second, pid = number // 1000, line.split(":", 2)[1]
            new.write(
                form.format(minute=second // 60 % 60, second=second % 60, fraction=number * 7919 % 10**9, pid=pid)
                + line
            )
    other.replace(path)


READ = """
import gc, resource, sys, time
from ncdiag.nccl.log import NcclLog, without_collection
with without_collection():
    parser, begin = NcclLog(), time.process_time()
    for _ in range(int(sys.argv[2])):
        with open(sys.argv[1], "rb") as file:
            while chunk := file.read(1 << 20):
                parser.feed("log", chunk)
    read = time.process_time() - begin
    facts = parser.finish()
    gc.freeze()  # as the commands do
print(read, time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(facts.communicators), sum(len(c.ranks) for c in facts.communicators))
"""


DIAGNOSE = """
import gc, resource, sys, time
from ncdiag.logs.diagnose import diagnose
from ncdiag.nccl.log import without_collection
begin = time.process_time()
with without_collection():
    found = diagnose(sys.argv[1:])
    gc.freeze()  # as the command does
print(time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, found.verdict.causes[0].cause)
"""


def used(command: List[str]) -> float:
    """Processor seconds of a command that ends well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)  # a pipe: with /dev/null grep stops at the first match
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def numbers(program: str, *arguments: str) -> List[float]:
    command = [sys.executable, "-c", program, *arguments]
    return [
        float(number)
        for number in re.findall(r"[\d.]+", subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("--ranks", type=int, default=1024)
    arguments.add_argument("--repeat", type=int, default=1)
    arguments.add_argument("--graph", action="store_true", help="subsystems GRAPH and NET too")
    arguments.add_argument("--prefix", choices=list(PREFIXES), default="", help="in front of every line")
    arguments.add_argument("--times", type=int, default=7, help="runs of which the best counts")
    arguments.add_argument("--keep", type=pathlib.Path, help="write the log here and leave it")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or pathlib.Path(folder, "nccl.log")
        write(path, options.ranks, options.repeat, options.graph)
        if options.prefix:
            prefixed(path, PREFIXES[options.prefix])
        report(path, options.ranks, options.times)


def report(path: pathlib.Path, ranks: int, times: int) -> None:
    size, file = path.stat().st_size / 1e6, str(path)
    greps, reads, diagnoses, commands = [], [], [], []
    for _ in range(times):  # in turn, so that a busy moment of the machine hits all
        greps.append(used(["grep", "-c", "NCCL INFO", file]))
        reads.append(numbers(READ, file, "1"))
        diagnoses.append(numbers(DIAGNOSE, file))
        commands.append(used([sys.executable, "-m", "ncdiag", "diagnose", file]))
    grep = min(greps)
    read, whole, memory, communicators, members = min(reads, key=lambda run: run[1])
    diagnosis, diagnosis_memory = min(diagnoses)[:2]

    def said(what: str, seconds: float, more: str = "") -> None:
        print(f"{what}: {size / seconds:.0f} MB/s ({seconds / grep:.1f} times grep's time){more}")

    print(f"log: {size:.1f} MB, {ranks} processes; {communicators:.0f} communicators with {members:.0f} ranks in all")
    print(f"grep -c: {size / grep:.0f} MB/s")
    said("ncdiag, reading", read)
    said("ncdiag, file to facts", whole, f", peak {memory / 1024:.0f} MiB")
    said("ncdiag, diagnosis", diagnosis, f", peak {diagnosis_memory / 1024:.0f} MiB")
    said("ncdiag diagnose, the whole command", min(commands))
    print(f"the same file five times over: peak {numbers(READ, file, '5')[2] / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
