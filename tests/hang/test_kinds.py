"""Kinds of faults, each as the states that its ranks are left in, and what has to be concluded from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from ncdiag.hang import infer
from ncdiag.model import Cause, Frame, Progress, RankState
from tests.hang.build import STILL, rank

STORE = "LISTEN *:29500"
SELF = ("ESTABLISHED 10.77.0.1:40001 10.77.0.1:29500", "ESTABLISHED 10.77.0.1:29500 10.77.0.1:40001")
IN, OUT = "ESTABLISHED 10.77.0.1:29500 10.77.0.2:40002", "ESTABLISHED 10.77.0.2:40002 10.77.0.1:29500"
AT = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}
LOCAL = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
MASTER = (STORE, *SELF)
MET = (*MASTER, IN)
READING = Progress(3.0, cpu_s=0.1, read_bytes=900 << 20, frames_changed=True)
COMPUTES = Progress(3.0, cpu_s=2.9, rss_bytes=9 << 20, page_faults=3000, frames_changed=True)
SPINS = Progress(3.0, cpu_s=3.0, gpu_utilisation=100.0, frames_changed=False)


def _eight(place: str, **more: RankState) -> list[RankState]:
    """Eight ranks of one node in one place, but those given by name `rN`."""
    return [more.get(f"r{number}") or rank(number, "gpu-a", place, world=8) for number in range(8)]


def _manager(node: str, place: str, role: str, *texts: str, title: str = "") -> RankState:
    return rank(None, node, place, *texts, role=role, pid=9000 + ord(node[-1]) + len(role), title=title)


KINDS: dict[str, tuple[Callable[[], list[RankState]], str, list[int]]] = {
    "store port rejected": (
        lambda: [rank(0, "node-a", "store", *MASTER, settings=AT), rank(1, "node-b", "store", settings=AT)],
        "bootstrap-blocked-firewall",
        [],
    ),
    "store port dropped": (
        lambda: [
            rank(0, "node-a", "store", *MASTER, settings=AT),
            rank(1, "node-b", "store", "SYN_SENT 10.77.0.2:40002 10.77.0.1:29500", settings=AT),
        ],
        "bootstrap-blocked-firewall",
        [],
    ),
    "store port differs": (
        lambda: [
            rank(0, "node-a", "store", *MASTER, settings=AT),
            rank(1, "node-b", "store", settings={**AT, "MASTER_PORT": "29555"}),
        ],
        "bootstrap-peer-unreachable",
        [1],
    ),
    "two nodes told the same rank": (
        lambda: [
            rank(0, "node-a", "mesh", *MET, settings=AT),
            rank(0, "node-b", "mesh", "LISTEN *:29500", OUT, settings=AT),
        ],
        "rank-layout-wrong",
        [0],
    ),
    "master address unroutable": (
        lambda: [
            rank(0, "node-a", "store", *MASTER, settings=AT),
            rank(
                1,
                "node-b",
                "store",
                "SYN_SENT 10.77.0.2:40002 10.99.0.1:29500",
                settings={**AT, "MASTER_ADDR": "10.99.0.1"},
            ),
        ],
        "node-ip-wrong-interface",
        [1],
    ),
    "node 0 never started": (lambda: [rank(1, "node-b", "store", settings=AT)], "rank-missing", [0]),
    "two of four never came": (
        lambda: [
            rank(0, "node-a", "store", *MASTER, "ESTABLISHED 10.77.0.1:29500 10.77.0.1:40009", world=4, settings=AT),
            rank(1, "node-a", "mesh", "ESTABLISHED 10.77.0.1:40009 10.77.0.1:29500", world=4, settings=AT),
        ],
        "rank-missing",
        [2, 3],
    ),
    "gloo on docker0 on both": (
        lambda: [
            rank(0, "node-a", "mesh", *MET, "LISTEN 172.17.0.1:38681", settings={"GLOO_SOCKET_IFNAME": "docker0"}),
            rank(1, "node-b", "mesh", OUT, "LISTEN 172.17.0.1:35492", settings={"GLOO_SOCKET_IFNAME": "docker0"}),
        ],
        "socket-ifname-wrong",
        [0, 1],
    ),
    "gloo on docker0, the other side died": (
        lambda: [
            rank(0, "node-a", "mesh", *MASTER, "LISTEN 172.17.0.1:38681", settings={"GLOO_SOCKET_IFNAME": "docker0"}),
            rank(1, "node-b", None, state="gone"),
        ],
        "socket-ifname-wrong",
        [0],
    ),
    "name resolves to loopback": (
        lambda: [
            rank(0, "node-a", "mesh", *MET, "LISTEN 127.0.1.1:39757"),
            rank(1, "node-b", "mesh", OUT, "LISTEN 127.0.1.1:39758"),
        ],
        "hostname-resolves-to-loopback",
        [0, 1],
    ),
    "gloo on lo on both": (
        lambda: [
            rank(0, "node-a", "mesh", *MET, "LISTEN 127.0.0.1:1", settings={"GLOO_SOCKET_IFNAME": "lo"}),
            rank(1, "node-b", "mesh", OUT, "LISTEN 127.0.0.1:2", settings={"GLOO_SOCKET_IFNAME": "lo"}),
        ],
        "socket-ifname-wrong",
        [0, 1],
    ),
    "gloo mesh dropped one way": (
        lambda: [
            rank(0, "node-a", "mesh", *MET, "LISTEN 10.77.0.1:42511"),
            rank(1, "node-b", "mesh", OUT, "LISTEN 10.77.0.2:42512", "SYN_SENT 10.77.0.2:40003 10.77.0.1:42511"),
        ],
        "bootstrap-blocked-firewall",
        [],
    ),
    "VLLM_HOST_IP loopback on node 1": (
        lambda: [
            rank(0, "node-a", "idle", *MET),
            rank(1, "node-b", "queue", OUT, "LISTEN 127.0.0.1:36857", settings={"VLLM_HOST_IP": "127.0.0.1"}),
            _manager("node-a", "executor-queue", "engine-core", "LISTEN 10.77.0.1:35369"),
            _manager("node-b", "wait-ready", "headless"),
        ],
        "node-ip-wrong-interface",
        [1],
    ),
    "zmq of the executor dropped": (
        lambda: [
            rank(0, "node-a", "idle", *MET),
            rank(1, "node-b", "queue", OUT, "SYN_SENT 10.77.0.2:40009 10.77.0.1:36647"),
            _manager("node-a", "executor-queue", "engine-core", "LISTEN 10.77.0.1:36647"),
        ],
        "bootstrap-blocked-firewall",
        [],
    ),
    "zmq of the worker dropped": (
        lambda: [
            rank(0, "node-a", "idle", *MET),
            rank(1, "node-b", "queue", OUT, "LISTEN 10.77.0.2:36111"),
            _manager("node-a", "executor-queue", "engine-core", "SYN_SENT 10.77.0.1:40009 10.77.0.2:36111"),
        ],
        "bootstrap-blocked-firewall",
        [],
    ),
    "two processes of one node told the same rank": (
        lambda: [
            rank(0, "node-a", "mesh", *MASTER, settings=LOCAL, world=3),
            rank(1, "node-a", "mesh", settings=LOCAL, world=3),
            rank(1, "node-a", "mesh", settings=LOCAL, world=3, pid=77),
        ],
        "rank-layout-wrong",
        [],
    ),
    "a program that a rank started has its number": (
        lambda: [
            rank(0, "node-a", "all-reduce", *MASTER, settings=LOCAL, world=3),
            rank(1, "node-a", "own-late", settings=LOCAL, world=3, still_s=90.0),
            rank(1, "node-a", "own", settings=LOCAL, world=3, pid=77),
        ],
        "rank-stuck-outside-collective",
        [1],
    ),
    "a store of the same machine that one does not come to": (
        lambda: [
            rank(0, "node-a", "store", *MASTER, settings=AT),
            rank(1, "node-a", "store", settings=AT),
        ],
        "bootstrap-peer-unreachable",
        [1],
    ),
    "both nodes have node rank 0": (
        lambda: [
            rank(0, "node-a", "store", *MASTER),
            _manager(
                "node-a",
                "wait-engine",
                "api-server",
                title="vllm serve m --nnodes 2 --node-rank 0 --master-addr 10.77.0.1",
            ),
            _manager("node-b", "handshake", "headless", title="vllm serve m --nnodes 2 --node-rank 0 --headless"),
        ],
        "rank-layout-wrong",
        [],
    ),
    "TP on one node, PP on the other": (
        lambda: [
            rank(0, "node-a", "groups", *MET),
            rank(1, "node-b", "groups", OUT),
            _manager(
                "node-a",
                "wait-engine",
                "api-server",
                title="vllm serve m --tensor-parallel-size 2 --nnodes 2 --node-rank 0",
            ),
            _manager(
                "node-b",
                "wait-ready",
                "headless",
                title="vllm serve m --pipeline-parallel-size 2 --nnodes 2 --node-rank 1 --headless",
            ),
        ],
        "rank-layout-wrong",
        [],
    ),
    "world sizes differ": (
        lambda: [rank(0, "node-a", "store", *MASTER), rank(1, "node-b", "store", world=4)],
        "rank-layout-wrong",
        [],
    ),
    "stopped while loading": (
        lambda: [rank(0, "node-a", "queue", *MET), rank(1, "node-a", "load", state="T")],
        "rank-stopped",
        [1],
    ),
    "frozen cgroup": (
        lambda: [rank(0, "node-a", "all-reduce"), rank(1, "node-b", "all-reduce", frozen=True)],
        "rank-stopped",
        [1],
    ),
    "held by a debugger": (
        lambda: [rank(0, "node-a", "all-reduce"), rank(1, "node-b", "own", state="t", tracer=77)],
        "rank-stopped",
        [1],
    ),
    "shard read stalled": (
        lambda: [rank(0, "node-a", "queue", *MET), rank(1, "node-b", "load", OUT, state="D", wchan="fuse_get_req")],
        "rank-stuck-outside-collective",
        [1],
    ),
    "slow shard": (
        lambda: [rank(0, "node-a", "queue", *MET), rank(1, "node-b", "load", OUT, state="D", progress=READING)],
        "slow-not-hung",
        [],
    ),
    "long compile": (
        lambda: [rank(0, "node-a", "compile", progress=COMPUTES), rank(1, "node-b", "profile-sync", progress=SPINS)],
        "slow-not-hung",
        [],
    ),
    "compile in helpers": (
        lambda: [
            rank(0, "node-a", "compile", progress=Progress(3.0, children_cpu_s=5.5, frames_changed=False)),
            rank(1, "node-b", "execute"),
        ],
        "slow-not-hung",
        [],
    ),
    "placement group waits": (
        lambda: [_manager("node-a", "placement", "engine-core"), _manager("node-a", "wait-engine", "api-server")],
        "ray-resources-infeasible",
        [],
    ),
    "ring neighbour on docker0": (
        lambda: [
            rank(0, "node-a", "ring-accept", *MET, "LISTEN 10.77.0.1:50001"),
            rank(
                1, "node-b", "ring-connect", OUT, "LISTEN 172.17.0.1:50002", settings={"NCCL_SOCKET_IFNAME": "docker0"}
            ),
        ],
        "socket-ifname-wrong",
        [1],
    ),
    "ring blocked": (
        lambda: [
            rank(0, "node-a", "ring-accept", *MET, "LISTEN 10.77.0.1:50001"),
            rank(
                1, "node-b", "ring-connect", OUT, "LISTEN 10.77.0.2:50002", "SYN_SENT 10.77.0.2:40009 10.77.0.1:50001"
            ),
        ],
        "bootstrap-blocked-firewall",
        [],
    ),
    "one of eight in the data loader": (
        lambda: _eight("cuda-sync", r5=rank(5, "gpu-a", "loader", world=8)),
        "rank-stuck-outside-collective",
        [5],
    ),
    "one of eight sleeps": (
        lambda: _eight("all-reduce", r3=rank(3, "gpu-a", "own-late", world=8)),
        "rank-stuck-outside-collective",
        [3],
    ),
    "one of eight at another collective": (
        lambda: _eight("all-reduce", r6=rank(6, "gpu-a", "all-reduce", world=8, line=44)),
        "collective-desync",
        [6],
    ),
    "four and four": (
        lambda: [rank(n, "gpu-a", "all-reduce", world=8, line=10 if n < 4 else 44) for n in range(8)],
        "collective-desync",
        [],
    ),
    "two differ": (lambda: [rank(0, "gpu-a", "all-reduce"), rank(1, "gpu-a", "groups")], "unresolved", []),
    "one of eight not yet in the group": (
        lambda: _eight("ring-accept", r2=rank(2, "gpu-a", "groups", world=8)),
        "unresolved",
        [2],
    ),
    "one worker idle while the others execute": (
        lambda: _eight("execute", r4=rank(4, "gpu-a", "idle", world=8)),
        "unresolved",
        [4],
    ),
    "link down": (
        lambda: [
            rank(0, "node-a", "all-reduce", *MET, "ESTABLISHED 10.77.0.1:5001 10.77.0.2:5002 send=48"),
            rank(1, "node-b", "all-reduce", OUT, "ESTABLISHED 10.77.0.2:5002 10.77.0.1:5001 send=48"),
        ],
        "bootstrap-peer-unreachable",
        [],
    ),
    "all in one collective": (lambda: _eight("all-reduce"), "unresolved", []),
    "one died": (lambda: [*_eight("all-reduce")[:7], rank(7, "gpu-a", None, world=8, state="gone")], "rank-died", [7]),
    "one zombie": (
        lambda: [*_eight("all-reduce")[:7], rank(None, "gpu-a", None, world=8, state="Z", role="script")],
        "rank-died",
        [7],
    ),
    "torchrun waits for its second node": (
        lambda: [
            rank(
                None,
                "node-a",
                "torchrun",
                "LISTEN *:29400",
                "ESTABLISHED 10.77.0.1:5 10.77.0.1:29400",
                role="launcher",
                title="torchrun --nnodes 2 --node-rank 0 train.py",
            )
        ],
        "rank-missing",
        [],
    ),
    "torchrun cannot reach the first node": (
        lambda: [
            rank(
                None,
                "node-b",
                "torchrun",
                "SYN_SENT 10.77.0.2:5 10.77.0.1:29400",
                role="launcher",
                title="torchrun --nnodes 2 train.py",
            )
        ],
        "bootstrap-peer-unreachable",
        [],
    ),
    "the program that started the ranks waits for them": (
        lambda: [
            rank(None, "gpu-a", "own", role="script", pid=50, world=3),
            *[
                rank(n, "gpu-a", "own-late" if n == 1 else "all-reduce", role="script", world=3, parent=50)
                for n in range(3)
            ],
        ],
        "rank-stuck-outside-collective",
        [1],
    ),
    "a rank elsewhere did come": (
        lambda: [rank(0, "node-a", "mesh", *MET, "ESTABLISHED 10.77.0.1:5001 10.77.0.2:5002")],
        "unresolved",
        [],
    ),
    "the engine waits for a file before there are ranks": (
        lambda: [
            _manager("node-a", "wait-engine", "api-server"),
            rank(None, "node-a", "config-read", role="engine-core", state="D", wchan="rpc_wait_bit_killable", pid=77),
        ],
        "rank-stuck-outside-collective",
        [],
    ),
    "head of the store stopped": (
        lambda: [rank(0, "node-a", "own", *MASTER, state="T"), rank(1, "node-b", "mesh", OUT)],
        "rank-stopped",
        [0],
    ),
    "ready": (lambda: [rank(0, "node-a", "idle", *MET), rank(1, "node-b", "idle", OUT)], "healthy", []),
    "half of it ready, the rest not seen": (lambda: [rank(1, "node-b", "idle", OUT)], "healthy", []),
    "capture": (lambda: [rank(n, "gpu-a", "capture", progress=COMPUTES) for n in range(2)], "slow-not-hung", []),
    "nothing": (list, "unresolved", []),
    "no stacks": (
        lambda: [rank(n, "gpu-a", None, stack_error="needs CAP_SYS_PTRACE") for n in range(2)],
        "unresolved",
        [],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind: str) -> None:
    states, cause, culprits = KINDS[kind]
    verdict = infer(states())
    assert verdict.causes[0].cause == cause, verdict.summary
    assert sorted(row.rank for row in verdict.culprits if row.rank is not None) == culprits


def test_half_seen_is_not_sure() -> None:
    verdict = infer(KINDS["half of it ready, the rest not seen"][0]())
    assert verdict.causes[0].confidence == "possible" and "rank 0" in " ".join(verdict.next)
    assert [row.state for row in verdict.ranks if row.rank == 0] == ["unknown"]


def test_placement_group_that_lacks_a_lost_node() -> None:
    states = KINDS["placement group waits"][0]()
    lost = Cause("ray-node-lost", "likely", "the worker node is not in the cluster any more", remedy="x")
    assert infer(states, logs=[lost]).causes[0].cause == "ray-node-lost"
    loop = [dataclasses.replace(state, settings={"VLLM_HOST_IP": "127.0.0.1"}) for state in states]
    assert infer(loop).causes[0].cause == "node-ip-wrong-interface"


def test_log_of_an_earlier_run_does_not_beat_what_runs_now() -> None:
    old = Cause("engine-exception", "likely", "the first exception is ValueError", remedy="x")
    verdict = infer(KINDS["ready"][0](), logs=[old])
    assert verdict.kind == "healthy" and [cause.cause for cause in verdict.causes] == ["healthy", "engine-exception"]


def test_log_names_why_a_rank_died() -> None:
    why = Cause("host-memory-oom", "sure", "the kernel killed a worker", remedy="x")
    verdict = infer(KINDS["one died"][0](), logs=[why])
    assert verdict.causes[0].cause == "host-memory-oom" and verdict.causes[0].secondary and verdict.kind == "hang"


def test_two_that_differ_name_nobody() -> None:
    verdict = infer(KINDS["two differ"][0]())
    assert "these two differ" in verdict.summary and not verdict.culprits


def test_who_waits_for_whom() -> None:
    verdict = infer(KINDS["one of eight sleeps"][0]())
    assert {wait.target for wait in verdict.waits} == {"rank 3 (gpu-a, pid 10703)"} and len(verdict.waits) == 7
    assert [len(fold.ranks) for fold in verdict.folds] == [7, 1] and verdict.folds[1].odd


def test_slow_storage_is_named_after_slow() -> None:
    creeps = Progress(3.0, cpu_s=0.1, read_bytes=3 << 20, frames_changed=False)
    verdict = infer([rank(0, "gpu-a", "queue"), rank(1, "gpu-a", "load", state="D", progress=creeps)])
    assert [cause.cause for cause in verdict.causes] == [
        "slow-not-hung",
        "storage-slow",
    ] and verdict.kind == "progressing"
    assert "1.0 MB/s" in verdict.causes[1].summary


def test_training_is_healthy() -> None:
    turns = Progress(3.0, cpu_s=0.4, frames_changed=True)
    verdict = infer(
        [rank(number, "gpu-a", "all-reduce" if number else "own", progress=turns, world=4) for number in range(4)]
    )
    assert verdict.kind == "healthy" and verdict.causes[0].confidence == "likely"


def test_time_left() -> None:
    bar = "Loading safetensors checkpoint shards:  25% Completed | 2/8 [00:20<01:05, 10.9s/it]"
    verdict = infer([rank(0, "gpu-a", "load", world=1, progress=READING, log_tail=[bar])])
    assert verdict.ranks[0].left_s == 65.0 and "2 of 8" in verdict.summary and "MB/s" in verdict.summary


STEPS = ["[rank0] epoch 0 step 4 loss 8.2", "[rank0] epoch 0 step 5 loss 8.1"]


@pytest.mark.parametrize(
    ("silent_s", "lines", "cause", "confidence"),
    [
        (2.0, STEPS, "slow-not-hung", "likely"),
        (40.0, STEPS, "rank-stuck-outside-collective", "likely"),
        (2.0, STEPS[:1], "rank-stuck-outside-collective", "possible"),
        (40.0, STEPS[:1], "rank-stuck-outside-collective", "possible"),
        (2.0, ["attempt 4/60: waiting", "attempt 5/60: waiting"], "rank-stuck-outside-collective", "possible"),
    ],
    ids=["counts-on", "long-ago", "one-step", "says-little", "tries"],
)
def test_a_job_whose_log_counts_on_during_the_look_is_slow(
    silent_s: float, lines: list[str], cause: str, confidence: str
) -> None:
    """A rank that sleeps 5 s in every step: for 3 s nothing of it moves."""
    states = [rank(number, "gpu-a", "own-late" if number == 1 else "all-reduce", world=3) for number in range(3)]
    for state in states:
        state.log_tail, state.log_source, state.silent_s = lines, "job.log", silent_s
    first = infer(states).causes[0]
    assert (first.cause, first.confidence) == (cause, confidence)


def test_a_stopped_rank_is_named_though_the_log_has_just_counted_on() -> None:
    states = [rank(0, "gpu-a", "all-reduce"), rank(1, "gpu-a", "own-late", state="T")]
    for state in states:
        state.log_tail, state.log_source, state.silent_s = STEPS, "job.log", 1.0
    assert infer(states).causes[0].cause == "rank-stopped"


def test_a_stopped_launcher_holds_no_rank_up() -> None:
    """Ranks at work stay healthy, one that is stuck stays the first; before there are ranks, nothing starts without it."""
    turns = Progress(3.0, cpu_s=0.4, frames_changed=True)
    launcher = rank(None, "gpu-a", "torchrun", role="launcher", state="T", world=2)
    ranks = [rank(number, "gpu-a", "all-reduce", progress=turns) for number in range(2)]
    verdict = infer([launcher, *ranks])
    assert [(cause.cause, cause.confidence) for cause in verdict.causes] == [
        ("healthy", "likely"),
        ("rank-stopped", "possible"),
    ]
    stuck = infer([launcher, rank(0, "gpu-a", "all-reduce"), rank(1, "gpu-a", "own-late")])
    assert (stuck.causes[0].cause, stuck.causes[0].where["rank"]) == ("rank-stuck-outside-collective", 1)
    alone = infer([launcher])
    assert (alone.causes[0].cause, alone.causes[0].confidence) == ("rank-stopped", "sure")


def test_what_cannot_be_resolved_says_what_to_do_next() -> None:
    verdict = infer([rank(number, "gpu-a", "all-reduce") for number in range(2)], logs=[])
    assert verdict.causes[0].cause != "unresolved" or verdict.next


def test_equal_stacks_at_different_lines_show_all_lines_and_no_native_frames_of_one() -> None:
    states = [rank(0, "gpu-a", "own"), rank(1, "gpu-a", "own-late")]
    (fold,) = infer(states).folds
    assert "nanosleep" in fold.frames[0]
    frames = states[1].threads[0]["frames"]
    states[1].threads[0]["frames"] = [
        dataclasses.replace(frame, line=63) if frame.name == "step" else frame for frame in frames
    ]
    (fold,) = infer(states).folds
    assert fold.frames[0] == "step (/home/user/train.py:10, 63)"
    assert not any("nanosleep" in text for text in fold.frames)


def test_a_stopped_data_loader_is_named() -> None:
    states = [rank(0, "gpu-a", "all-reduce"), rank(1, "gpu-a", "loader", halted_children=["4711 (pt_data_worker)"])]
    first = infer(states).causes[0]
    assert (first.cause, first.confidence, first.where["rank"]) == ("rank-stopped", "likely", 1)
    assert "4711 (pt_data_worker)" in first.summary and "kill -CONT 4711)" in first.remedy
    states[1].halted_children = []
    assert infer(states).causes[0].cause != "rank-stopped"


def test_a_program_that_a_rank_ran_and_that_is_done_is_no_rank_that_died() -> None:
    works = rank(1, "gpu-a", "own", progress=COMPUTES)
    states = [rank(0, "gpu-a", "all-reduce"), works]
    for number in (1, None):
        ended = rank(number, "gpu-a", None, state="gone", role="script", pid=5000, below=works.pid)
        assert infer([*states, ended]).causes[0].cause != "rank-died"
        ended.below = None
        assert infer([*states, ended]).causes[0].cause == "rank-died"


@pytest.mark.parametrize(("written", "kind"), [(2000, "healthy"), (0, "hang")])
def test_ranks_that_all_sleep_for_a_moment_are_at_work_where_they_sent_something(written: int, kind: str) -> None:
    naps = Progress(3.0, frames_changed=False, woken=3, written_bytes=written)
    verdict = infer([rank(number, "gpu-a", "own-late", world=3, progress=naps) for number in range(3)])
    assert verdict.kind == kind and not verdict.culprits, verdict.summary
    assert verdict.causes[0].confidence == ("likely" if written else "possible")


def test_a_remedy_is_written_with_what_is_known() -> None:
    dials = "SYN_SENT 10.77.0.2:5 10.77.0.1:29400"
    (lost,) = infer([rank(None, "b", "torchrun", dials, role="launcher", title="torchrun --nnodes 2 train.py")]).causes
    assert "ping 10.77.0.1, nc -vz 10.77.0.1 29400" in lost.remedy
    halted = infer([rank(0, "a", "all-reduce"), rank(1, "a", "all-reduce", state="T")])
    assert f"kill -CONT {halted.ranks[1].pid})" in halted.causes[0].remedy


def test_one_rank_is_told_as_one() -> None:
    assert infer([rank(0, "a", "idle", world=1)]).summary.startswith("1 of 1 rank is ready and waits for work")
    assert infer([rank(n, "a", "idle", world=2) for n in (0, 1)]).summary.startswith("2 of 2 ranks are ready and wait ")


@pytest.mark.parametrize(("world", "confidence"), [(4, "likely"), (2, "possible")])
def test_a_rank_that_waits_for_a_key_which_nobody_sets_is_named(world: int, confidence: str) -> None:
    others = [rank(number, "gpu-a", "all-reduce", world=world) for number in range(world - 1)]
    verdict = infer([*others, rank(world - 1, "gpu-a", "store-key", world=world)])
    first = verdict.causes[0]
    assert (first.cause, first.confidence) == ("rank-stuck-outside-collective", confidence)
    assert [row.rank for row in verdict.culprits] == [world - 1]
    assert "waits for a key of the store at step (train.py:10)" in first.summary and "same on all ranks" in first.remedy


def _of_ray(place: str, number: int = 0, works: bool = False) -> RankState:
    role, progress = "script" if number == 0 else "ray-worker", COMPUTES if works else STILL
    return rank(None, "gpu-a", place, role=role, world=1, pid=100 + number, progress=progress)


def test_an_actor_in_its_constructor_holds_up_the_program_that_asks() -> None:
    verdict = infer([_of_ray("ray-get"), _of_ray("ray-constructor", 1), _of_ray("ray-idle", 2)])
    assert verdict.causes[0].cause == "rank-stuck-outside-collective"
    assert [row.pid for row in verdict.culprits] == [101]


def test_an_actor_that_waits_for_itself_is_named() -> None:
    verdict = infer([_of_ray("ray-get"), _of_ray("ray-get-in-actor", 1), _of_ray("ray-idle", 2)])
    first = verdict.causes[0]
    assert (first.cause, first.confidence) == ("rank-stuck-outside-collective", "possible")
    assert [row.pid for row in verdict.culprits] == [101] and "one method at a time" in first.remedy


def test_a_task_that_runs_nowhere_is_not_healthy() -> None:
    states = [_of_ray("ray-get"), _of_ray("ray-idle", 1)]
    verdict = infer(states)
    assert (verdict.causes[0].cause, verdict.kind) == ("ray-resources-infeasible", "hang")
    assert "ray status" in verdict.causes[0].remedy
    works = _of_ray("ray-constructor", 2, works=True)
    assert all(cause.cause != "ray-resources-infeasible" for cause in infer([*states, works]).causes)


def test_a_thread_that_outlives_its_program_has_a_remedy_of_its_own() -> None:
    state = rank(1, "gpu-a", "at-exit")
    state.threads.append(
        {
            "name": "metrics",
            "active": False,
            "main": False,
            "frames": [Frame("report", "/home/user/train.py", 4, False), Frame("_bootstrap", "threading.py", 1, False)],
        }
    )
    first = infer([state]).causes[0]
    assert "report (train.py:4)" in first.summary and "daemon" in first.remedy


def test_a_whole_group_in_one_collective_is_told_what_that_can_mean() -> None:
    first = infer([rank(number, "gpu-a", "all-reduce") for number in range(2)]).causes[0]
    assert first.cause == "unresolved" and "all 2 ranks wait in all_reduce, none is missing" in first.summary
    assert "different groups" in first.summary
