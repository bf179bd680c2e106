"""The NCCL log parser: every version's forms, launchers' prefixes, damaged lines, identity over files, and who holds up whom."""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import time
from typing import List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncdiag.nccl.log import NcclLog
from ncdiag.nccl.log_facts import NcclFacts
from ncdiag.nccl.transports import branches

from . import composed

BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared"


def read(lines: List[str], source: str = "job.log") -> NcclFacts:
    parser = NcclLog()
    parser.feed(source, "".join(line + "\n" for line in lines).encode())
    return parser.finish()


@pytest.mark.parametrize("version", composed.VERSIONS, ids=composed.dotted)
def test_every_version_is_read_whole(version: composed.Version) -> None:
    facts = read(composed.job(version))
    (communicator,) = facts.communicators
    assert facts.versions == [composed.dotted(version)]
    assert {process.version for process in facts.processes} == {composed.dotted(version)}
    assert communicator.comm_id == "0xfeedc0de12345678"
    assert [rank.rank for rank in communicator.ranks] == [0, 1, 2, 3]
    assert communicator.stages == {"complete": "0-3"}
    assert communicator.missing == communicator.culprits == []
    assert [(ring.order, ring.channels) for ring in communicator.rings] == [("0-3", [0, 1])]
    assert communicator.between_nodes == {"NET/IB/GDRDMA": 4}
    assert communicator.transports == {"P2P/CUMEM/read": 2, "NET/IB/GDRDMA": 4}
    rank = communicator.ranks[1]
    process = facts.processes[rank.process]
    assert (process.host, process.pid, process.network, process.bootstrap_interface) == ("node01", 4001, "IB", "eth0")
    assert [(device.index, device.name, device.port, device.link) for device in process.net_devices] == [
        (0, "mlx5_0", 1, "RoCE"),
        (1, "mlx5_1", 1, "RoCE"),
    ]
    assert (process.bootstrap_address, process.oob_interface, process.relaxed_ordering) == ("192.0.2.1", "eth0", True)
    assert (rank.cuda_dev, rank.nvml_dev, rank.bus_id, rank.nvls, rank.coll_channels) == (1, 1, "19000", True, 2)
    assert [
        (link.peer, link.direction, link.transport, link.device, link.gdr, link.channels) for link in rank.links
    ] == [(2, "send", "NET/IB", 1, True, 2)]
    assert [(branch.up, branch.down, branch.channels) for branch in branches(rank.trees)] == [
        (0, [2], [0]),
        (0, [], [1]),
    ]
    assert rank.timings_s.get("topo") == (0.06 if version >= (2, 22) else None)
    assert rank.bootstrap_s.get("recv") == (0.500005 if version >= (2, 23) else None)
    assert not facts.events
    json.dumps(facts.to_json())


@pytest.mark.parametrize("stage", composed.STAGES)
@pytest.mark.parametrize("version", composed.VERSIONS, ids=composed.dotted)
def test_stage_of_a_rank_whose_log_stops(version: composed.Version, stage: str) -> None:
    facts = read(composed.job(version, until={2: stage}))
    (process,) = [process for process in facts.processes if process.pid == 4002]
    expected = "graph" if stage == "exchange" and version < (2, 20) else stage
    if stage == "network" and version < (2, 23):
        expected = "network"
    assert process.stage == expected
    ranks = [
        rank
        for communicator in facts.communicators
        for rank in communicator.ranks
        if rank.process == facts.processes.index(process)
    ]
    assert [rank.stage for rank in ranks] == (
        [expected] if composed.STAGES.index(expected) >= (2 if version >= (2, 23) else 3) else []
    )


def test_the_rank_that_never_came_is_named() -> None:
    lines = [
        line
        for line in composed.job((2, 27, 3), until=dict.fromkeys(range(4), "bootstrap"))
        if "node02:4003" not in line
    ]
    (communicator,) = read(lines).communicators
    assert (communicator.missing, communicator.culprits) == ([3], [3])
    assert communicator.stages == {"bootstrap": "0-2"}
    assert "rank 3" in communicator.reason


def test_a_process_without_communicator_may_be_the_missing_rank() -> None:
    (communicator,) = read(
        composed.job((2, 27, 3), until={0: "bootstrap", 1: "bootstrap", 2: "bootstrap", 3: "interface"})
    ).communicators
    assert communicator.culprits == [3]
    assert "node02 pid 4003 (at interface)" in communicator.reason


def test_the_slowest_of_waiting_ranks_is_named() -> None:
    (communicator,) = read(
        composed.job((2, 24, 3), until={0: "graph", 1: "graph", 2: "topology", 3: "graph"})
    ).communicators
    assert communicator.culprits == [2]


def test_equal_stages_name_nobody() -> None:
    (communicator,) = read(composed.job((2, 24, 3), until=dict.fromkeys(range(4), "peers"))).communicators
    assert communicator.culprits == []
    assert "does not tell" in communicator.reason


def test_missing_logs_after_the_rendezvous_are_not_missing_ranks() -> None:
    lines = [
        line for line in composed.job((2, 24, 3), until=dict.fromkeys(range(4), "topology")) if "node02" not in line
    ]
    (communicator,) = read(lines).communicators
    assert communicator.missing == [2, 3]
    assert communicator.culprits == []
    assert "logs are not here" in communicator.reason


PREFIXES = {
    "bare": "{}",
    "ray": "\x1b[36m(RayWorkerWrapper pid=4001, ip=192.0.2.1)\x1b[0m {}",
    "vllm": "\x1b[0;36m(Worker_TP1 pid=4001)\x1b[0;0m {}",
    "torchrun": "[rank1]:{}",
    "torchrun tee": "[default1]:{}",
    "mpirun": "[1,1]<stdout>:{}",
    "mpirun stamp": "Sun Nov 29 16:53:57 2026[1,1]<stdout>:{}",
    "slurm": " 1: {}",
    "kubernetes": "[pod/engine-1/worker] {}",
    "cri": "2026-11-29T16:53:57.123456789Z stdout F {}",
    "compose": "engine-1  | {}",
    "docker": '{{"log":"{}\\n","stream":"stdout","time":"2026-11-29T16:53:57.123456789Z"}}',
    "journald": "Nov 29 16:53:57 node01 vllm[4001]: {}",
    "iso": "2026-11-29T16:53:57+0000 {}",
    "nccl time": "[2026-11-29 16:53:57] {}",
    "carriage return": "{}\r",
    "progress bar": "Loading:  50%|#####     | 1/2 [00:01<00:01]\r{}",
}


@pytest.mark.parametrize("name", PREFIXES)
def test_prefixes_change_nothing(name: str) -> None:
    plain = composed.job((2, 27, 3))
    told, said = read([PREFIXES[name].format(line) for line in plain]), read(plain)
    assert [c.stages for c in told.communicators] == [c.stages for c in said.communicators]
    assert [c.transports for c in told.communicators] == [c.transports for c in said.communicators]
    assert [(p.host, p.pid, p.version, p.network) for p in told.processes] == [
        (p.host, p.pid, p.version, p.network) for p in said.processes
    ]
    labels = {process.label.get("by") for process in told.processes}
    expected = (
        name.split(" ")[0]
        if name.split(" ")[0] in ("ray", "torchrun", "mpirun", "slurm", "kubernetes", "compose", "journald")
        else None
    )
    assert labels == {{"vllm": "ray", "cri": "kubernetes"}.get(name, expected)}


def test_utf16_and_nuls() -> None:
    text = "".join(line + "\r\n" for line in composed.job((2, 27, 3)))
    parser = NcclLog()
    parser.feed("kubectl.txt", text.encode("utf-16"))
    parser.feed("sparse.log", b"\0" * 300_000 + text.encode())
    facts = parser.finish()
    assert [communicator.stages for communicator in facts.communicators] == [{"complete": "0-3"}]


def test_one_file_a_process_is_one_communicator() -> None:
    parser = NcclLog()
    for rank in range(4):
        text = "\n".join(line for line in composed.job((2, 27, 3)) if line.startswith(composed.prefix(rank)))
        parser.feed(f"nccl.node{rank // 2}.{rank}", text.encode())
    facts = parser.finish()
    assert [communicator.stages for communicator in facts.communicators] == [{"complete": "0-3"}]
    assert len(facts.sources) == 4


def test_the_same_file_twice_changes_no_identity() -> None:
    lines = composed.job((2, 21, 5))
    parser = NcclLog()
    for source in ("a.log", "copy-of-a.log"):
        parser.feed(source, "\n".join(lines).encode())
    facts = parser.finish()
    assert len(facts.processes) == 4
    assert [communicator.stages for communicator in facts.communicators] == [{"complete": "0-3"}]


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
def test_any_pieces_give_the_same(size: int) -> None:
    data = "\n".join(composed.job((2, 29, 2))).encode()
    parser = NcclLog()
    for start in range(0, len(data), size):
        parser.feed("job.log", data[start : start + size])
    assert parser.finish().to_json() == read(composed.job((2, 29, 2))).to_json() | {
        "sources": parser.finish().to_json()["sources"]
    }


def test_several_communicators_in_one_process() -> None:
    """A world of four and two splits of it; splits carry no commId before 2.31 and are told apart by parent and color."""
    lines = composed.job((2, 26, 2))
    for rank in range(4):
        split = f"comm 0x7e5700{rank:02x} rank {rank % 2} nranks 2 cudaDev {rank % 2} nvmlDev {rank % 2} busId 18000 parent 0x55d0c0ffee{rank:02x} color {rank // 2} key {rank}"
        lines.append(composed.prefix(rank) + f"ncclCommSplit {split}- Init START")
        lines.append(
            composed.prefix(rank)
            + f"Channel 00/0 : {rank % 2}[{rank % 2}] -> {1 - rank % 2}[{1 - rank % 2}] via SHM/direct/direct"
        )
        lines.append(composed.prefix(rank) + f"ncclCommSplit {split} - Init COMPLETE")
    facts = read(lines)
    world, left, right = facts.communicators
    assert (world.nranks, left.nranks, right.nranks) == (4, 2, 2)
    assert (left.parent, left.color, right.parent, right.color) == (0, 0, 0, 1)
    assert [rank.node for rank in left.ranks + right.ranks] == ["node01", "node01", "node02", "node02"]
    assert left.transports == right.transports == {"SHM/direct/direct": 2}
    assert "SHM/direct/direct" not in world.transports


def test_lazy_connect_after_init() -> None:
    """2.22 and later connect at the first collective, in threads that name no communicator."""
    lines = [line for line in composed.job((2, 27, 3)) if "Channel" not in line and "Connected" not in line]
    for rank in range(4):
        late = composed.prefix(rank).replace(f":{4100 + rank} ", f":{4900 + rank} ")
        lines += [late + message for _, message in composed.lines((2, 27, 3), rank, 4, "192.0.2.1") if "via" in message]
        lines += [late + "Connected all rings, use ring PXN 0 GDR 1"] if rank != 3 else []
    (communicator,) = read(lines).communicators
    assert communicator.stages == {"complete": "0-3"}
    assert all(rank.lazy_connect for rank in communicator.ranks)
    assert communicator.between_nodes == {"NET/IB/GDRDMA": 4}
    assert communicator.culprits == [3]


def test_one_process_with_all_ranks() -> None:
    """nccl-tests -g 4, ncclCommInitAll: one pid, a thread and a device a rank."""
    lines = []
    for rank in range(4):
        head = f"node01:77:{80 + rank} [{rank}] NCCL INFO "
        said = composed.lines((2, 23, 4), rank, 4, "192.0.2.1")
        lines += [
            head + re.sub(r"cudaDev \d nvmlDev \d", f"cudaDev {rank} nvmlDev {rank}", message) for _, message in said
        ]
    facts = read(lines)
    assert len(facts.processes) == 1
    assert [(c.nranks, c.stages) for c in facts.communicators] == [(4, {"complete": "0-3"})]
    assert all(rank.connected and rank.coll_channels == 2 for rank in facts.communicators[0].ranks)


def test_pointers_are_used_again_after_destroy() -> None:
    lines = []
    for _ in range(2):
        lines += composed.job((2, 20, 5))
        lines += [
            composed.prefix(rank)
            + f"comm 0x55d0c0ffee{rank:02x} rank {rank} nranks 4 cudaDev {rank % 2} busId 18000 - Destroy COMPLETE"
            for rank in range(4)
        ]
    lines = [line.replace(" commId 0xfeedc0de12345678", "") for line in lines]
    assert [c.stages for c in read(lines).communicators] == [{"destroyed": "0-3"}] * 2


TAILS = {
    "0/0 : 0[0] -> 1[1] via P2P/IPC/read": ("P2P/IPC", None, False, None, "/read"),
    "0/0 : 0[0] -> 1[1] via P2P/direct pointer/read": ("P2P/direct pointer", None, False, None, "/read"),
    "0/0 : 0[0] -> 1[1] via P2P/indirect/3[3]": ("P2P/indirect/3[3]", None, False, None, ""),
    "0/0 : 0[0] -> 1[1] via P2P/MNNVL": ("P2P/MNNVL", None, False, None, ""),
    "0 : 0[0] -> 1[1] via SHM/direct/direct": ("SHM/direct/direct", None, False, None, ""),
    "0 : 0[0] -> 1[1] via SHM/direct": ("SHM/direct", None, False, None, ""),
    "0/0 : 0[0] -> 1[1] [send] via NET/Socket/0": ("NET/Socket", 0, False, None, ""),
    "0/0 : 0[0] -> 1[1] [send] via NET/IB/11(7)/GDRDMA/Shared": ("NET/IB", 11, True, 7, ""),
    "0/0 : 0[0] -> 1[1] [send] via NET/AWS Libfabric/2/GDRDMA(PCI)": ("NET/AWS Libfabric", 2, True, None, "(PCI)"),
    "0/0 : 0[9a000] -> 1[9b000] [send] via NET/IBext_v8/7/GDRDMA": ("NET/IBext_v8", 7, True, None, ""),
}


@pytest.mark.parametrize("tail", TAILS)
def test_transports(tail: str) -> None:
    start = composed.prefix(0) + "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 9a000 - Init START"
    (communicator,) = read([start, f"{composed.prefix(0)}Channel 0{tail}"]).communicators
    (link,) = communicator.ranks[0].links
    assert (link.transport, link.device, link.gdr, link.proxy_rank, link.flags) == TAILS[tail]
    assert (link.peer, link.shared, link.at and link.at.line) == (1, "/Shared" in tail, 2)


DEVICES = {
    "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE  ; OOB ib0:192.0.2.7<0>": [
        (0, "mlx5_0", 1, "IB"),
        (1, "mlx5_1", 1, "RoCE"),
    ],
    "NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]; OOB ib0:192.0.2.7<0>": [(0, "mlx5_0", 1, "IB")],
    "NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB ib0:192.0.2.7<0>": [
        (0, "mlx5_0", 1, "RoCE"),
        (1, "mlx5_1", 1, "RoCE"),
    ],
    "NET/IB : Using [0]mlx5_0:1:0:1/RoCE [1]mlx5_1:1::2/RoCE [RO]; OOB ib0:192.0.2.7<0>": [
        (0, "mlx5_0", 1, "RoCE"),
        (1, "mlx5_1", 1, "RoCE"),
    ],
    "NET/Socket : Using [0]eth0:192.0.2.7<0> [1]eth1:2001:db8::7%eth1<0>": [
        (0, "eth0", None, None),
        (1, "eth1", None, None),
    ],
}


@pytest.mark.parametrize("message", DEVICES)
def test_network_devices(message: str) -> None:
    (process,) = read([composed.prefix(0) + message]).processes
    assert [(device.index, device.name, device.port, device.link) for device in process.net_devices] == DEVICES[message]
    assert process.oob_address == ("192.0.2.7" if "OOB" in message else None)


def test_what_else_a_process_says() -> None:
    lines = composed.job((2, 27, 3))
    lines += [composed.prefix(0) + message for message in (
        "NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2", "NET/Plugin: Plugin name set by env to libnccl-net-x.so",
        "RAS client listening socket at 127.0.0.1<28028>", "NVLS comm 0x55d0c0ffee00 headRank 0 nHeads 2 buffSize 4194304", "cudaDriverVersion 12080",
        "NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'", "GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 8 > 5)",
        "NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn 4011 mtu 5 GID 3 (0/7B02A8C0FFFF0000) fifoRkey=0x1 fifoLkey=0x1", "NET/IB: [1] mlx5_1:uverbs1:1/RoCE provider=Mlx5 speed=100000 context=0x1 pciPath=/x ar=0",
    )]  # fmt: skip
    facts = read(lines)
    process = facts.processes[0]
    assert (process.virtual_devices, process.ras_address, process.cuda_driver) == (
        ["2:mlx5_0+mlx5_1"],
        "127.0.0.1:28028",
        12080,
    )
    assert process.settings == {"NCCL_NET_PLUGIN": "libnccl-net-x.so"}
    assert (process.gid_indexes, process.qp_mtus) == ([3], [4096])
    assert (process.net_devices[1].gdr, process.net_devices[1].speed_mbits_s) == (False, 100000)
    assert process.gdr_distances == [{"hca": "1", "distance": 8, "limit": 5}]
    assert facts.communicators[0].transports["NVLS"] == 1
    assert {"bootstrap", "network", "net_devices", "gdr_disabled", "gpu_gdr_disabled", "gid_index"} <= set(
        process.evidence
    )


def test_collective_counts_tell_who_did_not_launch() -> None:
    lines = composed.job((2, 24, 3))
    for rank in range(4):
        for count in range(10, 12 if rank == 2 else 13):
            lines.append(
                composed.prefix(rank)
                + f"AllReduce: opCount {count:x} sendbuff 0x7 recvbuff 0x7 count 64 datatype 7 op 0 root 0 comm 0x55d0c0ffee{rank:02x} [nranks=4] stream 0x5"
            )
    (communicator,) = read(lines).communicators
    assert communicator.culprits == [2]
    assert [rank.op_count for rank in communicator.ranks] == [12, 12, 11, 12]


def test_settings_differ_between_ranks() -> None:
    each = {rank: {"NCCL_ALGO": "Ring" if rank else "Tree", "NCCL_IB_TIMEOUT": "22"} for rank in range(4)}
    (communicator,) = read(composed.job((2, 25, 1), settings=each)).communicators
    assert communicator.spread["NCCL_ALGO"] == {"Ring": "1-3", "Tree": "0"}
    assert communicator.spread["NCCL_IB_TIMEOUT"] == {"22": "0-3"}


def test_joined_and_cut_lines() -> None:
    whole = composed.job((2, 27, 3))
    text = "\n".join(whole) + "\n"
    # two processes' records in one line, as unlocked writes to one pipe leave them; and a WARN broken into another's line
    text += f"{composed.prefix(0)}Channel 05/0 : 0[0] -> 1[1] via NET/So{composed.prefix(1)}Connected all trees\n"
    text += f"{composed.prefix(1)}comm 0x55d0c0ffee01 rank 1 nranks 4 cudaDev 1 nvm{composed.prefix(2).replace('INFO', 'WARN')}Cuda failure 'out of memory'\n"
    facts = read(text.splitlines())
    (communicator,) = facts.communicators
    assert communicator.transports == {"P2P/CUMEM/read": 2, "NET/IB/GDRDMA": 4}
    assert len(facts.processes) == 4
    assert facts.sources[0].joined_lines == 2
    assert [(event.kind, event.pid) for event in facts.events] == [("cuda-failure", 4002)]


def test_a_line_cut_at_the_end_of_the_file_claims_nothing() -> None:
    parser = NcclLog()
    text = "\n".join([composed.prefix(0) + "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 9a000 - Init START"])
    parser.feed("cut.log", (text + f"\n{composed.prefix(0)}Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/1").encode())
    assert parser.finish().communicators[0].transports == {}


def test_a_huge_line_costs_no_memory() -> None:
    parser = NcclLog()
    parser.feed("huge.log", composed.prefix(0).encode())
    for _ in range(100):
        parser.feed("huge.log", b"x" * 1_000_000)
    assert len(parser._lines["huge.log"].rest) <= 64 * 1024
    parser.feed("huge.log", b"\n" + "\n".join(composed.job((2, 27, 3))).encode())
    facts = parser.finish()
    assert facts.sources[0].cut_lines == 1
    assert "of 1 line longer than 64 KiB only the beginning was read" in facts.notes
    assert facts.communicators[0].stages == {"complete": "0-3"}
    assert facts.communicators[0].ranks[0].stage_at.line > 1  # type: ignore[union-attr]


def test_ray_folding_is_told() -> None:
    lines = composed.job((2, 27, 3))[:1] + [composed.prefix(1) + "Using network Socket [repeated 7x across cluster]"]
    facts = read(lines)
    assert facts.processes[-1].network == "Socket"
    assert facts.sources[0].ray_repeated == 7
    assert facts.notes[0] == "Ray folded 7 lines of other processes; RAY_DEDUP_LOGS=0 shows every one"


def test_old_logs_without_comm_id_keep_nodes_apart() -> None:
    """Two jobs of two ranks each, one a node, no commId: ranks of one host belong together."""
    lines = []
    for rank in (0, 1):
        for host in ("left", "right"):
            lines.append(
                f"{host}:5{rank}:5{rank} [{rank}] NCCL INFO comm 0x{rank + 1} rank {rank} nranks 2 cudaDev {rank} busId 101c0 - Init COMPLETE"
            )
    nodes = [[rank.node for rank in communicator.ranks] for communicator in read(lines).communicators]
    assert nodes == [["left", "left"], ["right", "right"]]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(composed.VERSIONS), st.integers(0, 10_000), st.integers(0, 3000))
def test_damaged_logs_never_raise(noise: bytes, version: composed.Version, at: int, drop: int) -> None:
    data = "\n".join(composed.job(version)).encode()
    at %= len(data)
    parser = NcclLog()
    parser.feed("damaged.log", data[:at] + noise + data[at + drop :])
    json.dumps(parser.finish().to_json())


FRAGMENTS = st.sampled_from(
    ["NCCL INFO ", "NCCL WARN ", "NCCL ", "Channel 00", "/0 : ", "0[0] -> 1[1]", " via ", "NET/IB/", "h:1:2 ", "[0] ", "comm 0x1 rank 0 nranks ", "\n", "\r", "\x1b[3",
     "-> 2", "Trees ", "[0] ", "1/", "<0>", "99999999999", " - Init START", " - Init COMPLETE", "Bootstrap: Using ", "NCCL_X set by environment to ", "((", "{\"log\":\"", " [repeated "]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=10)), max_size=80))
def test_scrambled_pieces_never_raise(pieces: List[str]) -> None:
    parser = NcclLog()
    parser.feed("scrambled.log", "".join(pieces).encode("utf-8", "surrogatepass"))
    json.dumps(parser.finish().to_json())


def _samples() -> List[pathlib.Path]:
    if not BESIDE.is_dir():
        return []
    return [
        path
        for pattern in ("cases/incidents/*/*.*", "lab/*/evidence/*/*.log*")
        for path in BESIDE.glob(pattern)
        if path.suffix != ".yaml"
    ]


@pytest.mark.skipif(not _samples(), reason="the shared cases are not beside this checkout")
def test_sample_logs_are_read_without_trouble() -> None:
    for path in _samples():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        parser = NcclLog()
        parser.feed(path.name, data)
        facts = parser.finish()
        spoken = len(re.findall(rb"NCCL (?:INFO|WARN) ", data))
        assert bool(facts.processes) == bool(spoken), path
        assert not [event for event in facts.events if event.kind == "warning" and "Got completion" in event.message], (
            path
        )


HOSTILE = {
    "digits": b"1" * 60_000,
    "colons": b"a:" * 30_000,
    "no spaces": b"x" * 60_000,
    "records": b"NCCL INFO " * 6_000,
    "speakers": b"h:1:2 [0] NCCL INFO " * 3_000,
    "escapes": b"\x1b]" * 30_000,
    "docker": b'{"log":"' + b'\\"a' * 20_000,
    "brackets": b"[0]" * 20_000,
    "peers": b"Got completion from peer a" * 2_000,
    "retrying": b"Connect to a" * 5_000 + b" retrying",
    "failed": b"nvml failed Call to NET/IB device " * 1_500,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "shape",
    [
        "{}",
        "h:1:2 [0] NCCL INFO {}",
        "h:1:2 [0] NCCL WARN {}",
        "h:1:2 [0] NCCL INFO Channel 00{}",
        "{} NCCL INFO x",
        "h:1:2 [0] NCCL INFO NET/IB : {}",
    ],
)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lines_end_in_time(name: str, shape: str) -> None:
    before, _, after = shape.partition("{}")
    parser, began = NcclLog(), time.process_time()
    for number in range(20):
        parser.feed("hostile.log", before.encode() + HOSTILE[name] + b"%d" % number + after.encode() + b"\n")
    parser.finish()
    assert time.process_time() - began < 5
