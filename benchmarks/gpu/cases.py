"""What is run for the captures of NCCL, what is done to it, and the truth about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FINE = ("healthy", "slow-not-hung")
OVER_TCP = (*FINE, "net-fallback-slow")
"""True of every job here that has several hosts: there is no RDMA device."""
TWO = ((0,), (1,))
"""Two hosts, a GPU each."""
ONE_HOST = ((0, 1),)
FOUR = ((0, 1), (0, 1))
"""Two hosts, each with both GPUs: four ranks."""
EIGHT = ((0, 1),) * 4
FOUR_EACH = ((0, 1, 2, 3),) * 2
"""Two hosts, each with four GPUs: eight ranks."""
STORE_PORT = 29710
"""Of the first case; the next one takes the next."""
SHORT = {"JOB_TIMEOUT_S": "20"}
"""The watchdog fires after the dumps, and its words are in the logs."""


@dataclass(frozen=True)
class Case:
    """One run. A rank's number is its place in `hosts`, read from left to right."""

    name: str
    done: str
    """What was done, in a few words."""
    causes: tuple[str, ...] = FINE
    """What a dump of all ranks may conclude; the best first. Empty: the ranks end by themselves, the logs tell."""
    culprits: tuple[int, ...] = ()
    stage: str = ""
    """The culprits' stage; empty where it is left to chance."""
    logs: tuple[str, ...] | None = None
    """What the logs of all ranks alone may conclude, where that differs from `causes`."""
    decidable: str = "yes"
    """Whether the logs alone carry it: `yes`, `partly` (among the first three), `no` (nothing may be sure)."""
    one_host: tuple[str, ...] = ()
    """What a dump of one host alone may conclude besides, with more than `possible`."""
    hosts: tuple[tuple[int, ...], ...] = TWO
    """The GPU of every rank of every host."""
    env: Mapping[str, str] = field(default_factory=dict)
    env_of: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    fault: tuple[str, int] | None = None
    """JOB_FAULT and JOB_FAULT_RANK."""
    absent: tuple[int, ...] = ()
    until: str = "step 10"
    """What every rank that runs has to have noted down before `act` and the dumps."""
    act: tuple[tuple[str, int], ...] = ()
    """`stop` a rank, `cut`, `unreachable`, `firewall` or `slow` what goes to a host."""
    gate: bool = False
    """Ranks wait after the store until `act` is done."""
    settle_s: float = 6.0
    end_s: float = 0.0
    """How long to wait after the dumps for the ranks to end by themselves."""
    shm: str = "8g"
    torchrun: bool = False
    alone: bool = False
    """Nothing else runs beside it."""
    neighbour: str = ""
    """Another program on the last GPU: `memory` takes nearly all of it, `busy` computes."""

    @property
    def world(self) -> int:
        return sum(len(gpus) for gpus in self.hosts)

    @property
    def seats(self) -> int:
        """How many ranks run; 0: nothing else may run beside it."""
        return 0 if self.alone else self.world


_FULL = {"NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH,TUNING,P2P,SHM,BOOTSTRAP", "JOB_PAUSE_S": "0.02"}
_NOT_P2P = {"NCCL_P2P_DISABLE": "1"}
_DESYNC = ("collective-desync",)
_SILENT = ("collective-desync", *FINE)
"""NCCL does not compare what ranks call: only the flight recorder shows it, and nothing hangs."""
_OUTSIDE = ("rank-stuck-outside-collective",)
_NOTHING = ("unresolved",)

CASES = (
    Case("healthy-eight", "works", hosts=EIGHT, alone=True, settle_s=8, logs=OVER_TCP),
    Case("healthy-p2p", "works over NVLink or PCIe", hosts=ONE_HOST, env=_FULL, alone=True),
    Case("healthy-shm", "works over shared memory", hosts=ONE_HOST, env={**_FULL, **_NOT_P2P}),
    Case("healthy-sockets", "works over TCP", env=_FULL, logs=OVER_TCP),
    Case("healthy-one-gpu", "two hosts on one GPU", hosts=((0,), (0,)), env=_FULL, logs=OVER_TCP),
    Case("healthy-four-gpus", "works on four GPUs of one host", hosts=((0, 1, 2, 3),), env=_FULL),
    Case("healthy-two-times-four", "works on two hosts, four GPUs each", hosts=FOUR_EACH, alone=True, env={"JOB_PAUSE_S": "0.02"}, logs=OVER_TCP),
    Case("healthy-all-subsystems", "works; NCCL_DEBUG_SUBSYS=ALL", hosts=FOUR, env={"NCCL_DEBUG_SUBSYS": "ALL", "JOB_PAUSE_S": "1"}, until="step 1", logs=OVER_TCP),
    Case("healthy-debug-file", "works; NCCL_DEBUG_FILE", env={"NCCL_DEBUG_FILE": "{place}/nccl.%h.%p.log", "JOB_PAUSE_S": "0.02"}, logs=OVER_TCP),
    Case("healthy-torchrun", "works under torchrun", hosts=ONE_HOST, torchrun=True, env={"TORCH_CPP_LOG_LEVEL": "INFO"}),
    Case("healthy-eager", "works; communicator made at once", env={"JOB_EAGER": "1"}, logs=OVER_TCP),
    Case("plugin-missing", "NCCL_NET_PLUGIN names a plugin that is not installed; works without", env={"NCCL_NET_PLUGIN": "aws-ofi", "JOB_PAUSE_S": "0.02"}, logs=OVER_TCP),
    Case("hca-missing", "NCCL_IB_HCA names a device that is not there; works over TCP", env={"NCCL_IB_HCA": "mlx5_0", "JOB_PAUSE_S": "0.02"},
         logs=(*OVER_TCP, "rdma-unavailable")),
    Case("slow-link", "1 MB/s towards host 1", (*FINE, *_NOTHING), env={"JOB_ELEMENTS": str(8 << 20)}, until="step 1", act=(("slow", 1),),
         logs=OVER_TCP),
    Case("slow-rank", "rank 1 takes 2 s longer for every step", env_of={1: {"JOB_PAUSE_S": "2"}}, until="step 1", logs=OVER_TCP),
    Case("busy-neighbour", "another program computes on the last GPU", neighbour="busy", alone=True, logs=OVER_TCP),
    Case("decoy-interface", "rank 1 uses docker0", ("socket-ifname-wrong",), (1,), env_of={1: {"NCCL_SOCKET_IFNAME": "docker0"}}, env=SHORT, until="met", end_s=22, stage="nccl-init"),
    Case("decoy-interface-of-four", "host 1 uses docker0", ("socket-ifname-wrong",), (2, 3), hosts=FOUR, until="met",
         env_of={2: {"NCCL_SOCKET_IFNAME": "docker0"}, 3: {"NCCL_SOCKET_IFNAME": "docker0"}}, stage="nccl-init"),
    Case("no-such-interface", "NCCL_SOCKET_IFNAME names no interface", (), env={"NCCL_SOCKET_IFNAME": "ib7", **SHORT}, until="met", logs=("socket-ifname-wrong",), end_s=15),
    Case("no-such-interface-of-one", "NCCL_SOCKET_IFNAME of rank 1 names no interface", ("rank-missing", "rank-died", "socket-ifname-wrong"), (1,), until="met", end_s=22,
         env=SHORT, env_of={1: {"NCCL_SOCKET_IFNAME": "ib7"}}, logs=("socket-ifname-wrong",)),
    Case("loopback", "NCCL_SOCKET_IFNAME=lo", ("socket-ifname-wrong",), (0, 1), env={"NCCL_SOCKET_IFNAME": "lo", **SHORT}, until="met", end_s=22, stage="nccl-init"),
    Case("missing-rank", "rank 1 is not started", ("rank-missing",), (1,), absent=(1,), until="start", env=SHORT, end_s=22),
    Case("missing-host", "host 1 is not started", ("rank-missing",), (2, 3), hosts=FOUR, absent=(2, 3), until="start", decidable="no"),
    Case("late-rank", "rank 1 sleeps before it meets the store", _OUTSIDE, (1,), fault=("late", 1), until="start", settle_s=12, decidable="no", one_host=("rank-missing",), stage="program"),
    Case("late-first-collective", "rank 1 sleeps before its first collective", _OUTSIDE, (1,), fault=("late_init", 1), until="met", decidable="no", stage="program"),
    Case("late-first-collective-of-four", "rank 2 sleeps before its first collective", _OUTSIDE, (2,), hosts=FOUR, fault=("late_init", 2), until="met", decidable="no", stage="program"),
    Case("stopped-rank", "SIGSTOP to rank 1", ("rank-stopped",), (1,), act=(("stop", 1),), env=SHORT, end_s=22, decidable="no", stage="collective"),
    Case("stopped-rank-of-four", "SIGSTOP to rank 2", ("rank-stopped",), (2,), hosts=FOUR, act=(("stop", 2),), env=SHORT, end_s=22, decidable="partly", stage="collective"),
    Case("stopped-rank-over-nvlink", "SIGSTOP to rank 2 of four GPUs", ("rank-stopped",), (2,), hosts=((0, 1, 2, 3),), act=(("stop", 2),), env=SHORT, end_s=22, decidable="no"),
    Case("stopped-rank-of-eight", "SIGSTOP to rank 5", ("rank-stopped",), (5,), hosts=FOUR_EACH, act=(("stop", 5),), env=SHORT, end_s=22, decidable="partly", stage="collective"),
    Case("stopped-in-bootstrap", "SIGSTOP to rank 1 before its first collective", ("rank-stopped",), (1,), act=(("stop", 1),), gate=True, until="met", decidable="no", stage="program"),
    Case("forced-ib", "NCCL_NET=IB without a device", (), env={"NCCL_NET": "IB", **SHORT}, until="met", logs=("net-plugin-forced-unavailable", "rdma-unavailable"), end_s=15),
    Case("duplicate-gpu", "two ranks of one host on GPU 0", (), hosts=((0, 0),), env=SHORT, until="met", logs=("duplicate-gpu",), end_s=15),
    Case("other-size", "rank 2 calls another size; it works, with wrong sums", _SILENT, (2,), hosts=FOUR, fault=("size", 2), until="fault", env=SHORT, end_s=22, decidable="no"),
    Case("other-size-of-two", "rank 1 calls another size; it works, with wrong sums", _SILENT, (), fault=("size", 1), until="fault", env=SHORT, end_s=22, decidable="no"),
    Case("other-collective", "rank 1 calls an all-gather; it works, with wrong sums", _SILENT, (1,), hosts=FOUR, fault=("gather", 1), until="fault", env=SHORT, end_s=22, decidable="no"),
    Case("other-operation", "rank 1 calls a broadcast; it works, with wrong sums", _SILENT, (1,), hosts=FOUR, fault=("operation", 1), until="fault", env=SHORT, end_s=22, decidable="no"),
    Case("skipped-collective", "rank 3 leaves one of 60 all-reduces out", (*_OUTSIDE, *_DESYNC), (3,), hosts=FOUR, fault=("skip", 3), until="fault",
         env={**SHORT, "JOB_STEPS": "60"}, end_s=22, stage="program"),
    Case("skipped-collective-of-eight", "rank 1 leaves one of 60 all-reduces out", (*_OUTSIDE, *_DESYNC), (1,), hosts=FOUR_EACH, fault=("skip", 1), until="fault",
         env={**SHORT, "JOB_STEPS": "60"}, end_s=22, stage="program"),
    Case("receive-without-send", "rank 3 receives from rank 0, which calls an all-reduce", _DESYNC, (3,), hosts=FOUR, fault=("receive", 3), until="fault", env=SHORT, end_s=22,
         decidable="no"),
    Case("two-groups", "ranks 2 and 3 use two groups in the other order", _DESYNC, (), hosts=FOUR, fault=("two_groups", 0), until="fault", decidable="no"),
    Case("loader", "rank 2 sleeps in its loader", _OUTSIDE, (2,), hosts=FOUR, fault=("sleep", 2), env=SHORT, end_s=22, decidable="partly", one_host=_DESYNC, stage="program"),
    Case("loader-of-eight", "rank 6 sleeps in its loader", _OUTSIDE, (6,), hosts=FOUR_EACH, fault=("sleep", 6), env=SHORT, end_s=22, decidable="partly", one_host=_DESYNC, stage="program"),
    Case("loader-of-two", "rank 0 waits for a lock", _OUTSIDE, (0,), fault=("lock", 0), decidable="no", one_host=_DESYNC, stage="program"),
    Case("endless-loop", "rank 1 computes for ever in Python", _OUTSIDE, (1,), hosts=ONE_HOST, fault=("loop", 1), decidable="no", stage="program"),
    Case("endless-kernel", "a kernel of rank 1 does not end", _NOTHING, (), fault=("busy_gpu", 1), decidable="no"),
    Case("killed-rank", "rank 3 kills itself", ("rank-died", "rank-missing"), (3,), hosts=FOUR, fault=("die", 3), env=SHORT, end_s=22, settle_s=4),
    Case("killed-rank-of-eight", "rank 7 kills itself", ("rank-died", "rank-missing"), (7,), hosts=FOUR_EACH, fault=("die", 7), env=SHORT, end_s=22, settle_s=4, decidable="partly"),
    Case("killed-rank-one-host", "rank 1 kills itself", ("rank-died", "rank-missing"), (1,), hosts=ONE_HOST, fault=("die", 1), env=SHORT, end_s=22, settle_s=4, decidable="no"),
    Case("exception", "rank 1 raises", ("engine-exception", "rank-died", "rank-missing"), (1,), hosts=FOUR, fault=("raise", 1), env=SHORT, end_s=22, settle_s=4,
         logs=("engine-exception",)),
    Case("killed-rank-zero", "rank 0, which has the store, kills itself", ("rank-died", "rank-missing"), (0,), hosts=FOUR, fault=("die", 0), env=SHORT, end_s=22, settle_s=4,
         decidable="partly"),
    Case("out-of-memory", "rank 1 asks for more memory than its GPU has", ("gpu-memory-exhausted", "engine-exception", "rank-died", "rank-missing"), (1,), fault=("memory", 1), env=SHORT,
         end_s=22, settle_s=4, logs=("gpu-memory-exhausted",)),
    Case("bad-index", "an index of rank 1 is outside of its table", ("cuda-illegal-memory-access", "engine-exception", "rank-died", "rank-missing"), (1,), hosts=FOUR, fault=("index", 1),
         env=SHORT, end_s=22, settle_s=4, logs=("cuda-illegal-memory-access", "engine-exception")),
    Case("left-early", "rank 1 ends as if it were done", ("rank-died", "rank-missing"), (1,), fault=("leave", 1), env=SHORT, end_s=22, settle_s=4,
         logs=("rank-died", "rank-missing", "collective-desync", *_NOTHING), decidable="no"),
    Case("other-world", "rank 1 is told of three ranks, there are two", ("rank-layout-wrong", "rank-missing"), (), env_of={1: {"WORLD_SIZE": "3"}}, until="start", env=SHORT, settle_s=12, end_s=22,
         decidable="no"),
    Case("other-port", "rank 1 is told a port on which nobody listens", ("bootstrap-peer-unreachable", "rank-missing", "rank-layout-wrong"), (), env_of={1: {"MASTER_PORT": "29655"}}, until="start", env=SHORT, settle_s=12,
         end_s=22, decidable="no"),
    Case("torchrun-exception", "rank 1 raises under torchrun", (), hosts=ONE_HOST, fault=("raise", 1), torchrun=True, logs=("engine-exception",), end_s=15),
    Case("torchrun-missing-host", "torchrun on host 1 is not started", ("rank-missing", *_NOTHING), (), hosts=FOUR, absent=(2, 3), torchrun=True, until="", settle_s=14, decidable="no"),
    Case("firewall", "only the store's port is open towards host 1", ("bootstrap-blocked-firewall",), (), env=SHORT, act=(("firewall", 1),), gate=True, until="met", end_s=22, decidable="no"),
    Case("firewall-of-four", "only the store's port is open towards host 1", ("bootstrap-blocked-firewall",), (), hosts=FOUR, act=(("firewall", 1),), gate=True, until="met",
         settle_s=12, decidable="no"),
    Case("rejected", "the router answers that host 1 is unreachable", ("bootstrap-peer-unreachable", "bootstrap-blocked-firewall"), (), act=(("reject", 1),), gate=True,
         until="met", env=SHORT, end_s=22, decidable="no"),
    Case("cut-link", "nothing reaches host 1 any more", ("bootstrap-peer-unreachable",), (), act=(("cut", 1),), env=SHORT, end_s=22, settle_s=8, decidable="no"),
    Case("shm-too-small", "64 KiB of /dev/shm", (), hosts=ONE_HOST, env={**_NOT_P2P, "NCCL_CUMEM_HOST_ENABLE": "0", **SHORT}, shm="64k", until="met", logs=("shm-too-small",), end_s=15),
    Case("bad-algorithm", "NCCL_ALGO names no algorithm", (), env={"NCCL_ALGO": "Rings", **SHORT}, until="met", logs=("env-unknown-or-invalid",), end_s=15),
    Case("bad-topology-file", "NCCL_TOPO_FILE is cut off", (), env={"NCCL_TOPO_FILE": "{place}/cut.xml", **SHORT}, until="met", logs=("topology-file-error",), end_s=15),
    Case("hidden-gpus", "CUDA_VISIBLE_DEVICES of rank 1 is empty", ("rank-missing", "rank-died"), (1,), env=SHORT, env_of={1: {"CUDA_VISIBLE_DEVICES": ""}}, until="start", settle_s=12,
         logs=("visible-devices-conflict",), end_s=22),
    Case("no-such-gpu", "rank 1 asks for GPU 5", ("rank-missing", "rank-died"), (1,), env=SHORT, env_of={1: {"JOB_GPU": "5"}}, until="start", settle_s=12, logs=("rank-layout-wrong", "visible-devices-conflict"),
         end_s=22),
    Case("memory-taken", "another program holds nearly all memory of the last GPU", ("rank-died", "rank-missing"), (1,), env=SHORT, neighbour="memory", alone=True, until="start", settle_s=12,
         logs=("gpu-memory-exhausted", "gpu-memory-occupied"), end_s=15),
)
