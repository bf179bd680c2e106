"""What stands beside, before or after: the log of another run says nothing about the one that is asked about, nor do beginnings and ends of lines that are cut."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

SERVES = """(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO:     192.0.2.9:41002 - "POST /v1/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO:     192.0.2.9:41004 - "POST /v1/completions HTTP/1.1" 200 OK
"""
TRAINS = """step 10 loss 2.31 lr 1e-4
step 20 loss 2.12 lr 1e-4
step 30 loss 2.04 lr 1e-4
Training complete
"""
STANDS = """[rank1]:[E304 05:06:07.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.
"""


def causes_of(**files: str) -> list[Cause]:
    return of_streams(Stream(name, iter([text.encode()]), text.encode()) for name, text in files.items()).verdict.causes


@pytest.mark.parametrize("good", [SERVES, TRAINS], ids=["serves", "trains"])
@pytest.mark.parametrize("first", ["good", "stands"])
def test_a_healthy_log_does_not_cover_another_one_that_stands(good: str, first: str) -> None:
    files = {"good": good, "stands": STANDS}
    names = sorted(files, key=lambda name: name != first)
    assert causes_of(good=good)[0].cause == "healthy"
    assert causes_of(stands=STANDS)[0].cause == "unresolved"
    assert causes_of(**{name: files[name] for name in names})[0].cause == "unresolved"


def test_what_the_same_log_outlived_is_over() -> None:
    assert causes_of(one=STANDS + SERVES, two=TRAINS)[0].cause == "healthy"


RING = """gpu1:71:88 [0] NCCL INFO ncclCommInitRankConfig comm 0x5f0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init START
gpu1:71:88 [0] NCCL INFO Channel 00/02 : 0 1
"""


TABLE = "# out-of-place\n       8             2     float     sum      -1    618.4    0.00    0.00      0    611.9    0.00    0.00      0\n"


def test_a_table_that_was_kept_twice_is_of_one_run() -> None:
    other = TABLE.replace("618.4", "602.1")
    assert "rank-layout-wrong" not in {cause.cause for cause in causes_of(one=TABLE, copy=TABLE)}
    assert causes_of(one=TABLE + other)[0].cause == "rank-layout-wrong"


def test_every_process_alone_beside_a_benchmark_that_works() -> None:
    alone = TABLE + TABLE.replace("618.4", "602.1")
    good = "".join(
        f"    {8 << row}    2    float    sum    -1    61{row}.4    0.10    0.17    0    611.9    0.10    0.17    0\n"
        for row in range(4)
    )
    good += "# Avg bus bandwidth    : 0.17\n"
    assert causes_of(good=good)[0].cause == "healthy"
    for files in ({"alone": alone, "good": good}, {"a": good, "alone": alone}):
        assert causes_of(**files)[0].cause == "rank-layout-wrong"
    assert causes_of(one=TABLE, two=TABLE.replace("618.4", "602.1"))[0].cause == "rank-layout-wrong"


def test_a_log_may_end_within_any_line() -> None:
    for end in range(RING.index("Channel"), len(RING)):
        assert causes_of(cut=RING[:end])[0].cause == "unresolved"


def test_a_symbol_that_is_cut_names_no_other_library() -> None:
    text = "ImportError: /opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister\n"
    assert causes_of(whole=text)[0].cause == "nccl-version-mismatch"
    for end in range(text.index("libtorch"), len(text)):
        sure = {cause.cause for cause in causes_of(cut=text[:end]) if cause.confidence == "sure"}
        assert sure <= {"nccl-version-mismatch"}, text[:end]


def test_a_list_of_guesses_whose_beginning_was_rotated_away_is_none() -> None:
    dead = """(raylet) The node with node id: 5e and address: 192.0.2.7 and node name: 192.0.2.7 has been marked dead because the detector has missed too many heartbeats from it. This can happen when a \t(1) raylet crashes unexpectedly (OOM, preempted node, etc.)
"""
    assert causes_of(whole=dead)[0].cause == "ray-node-lost"
    for start in range(dead.index(" This can"), dead.index("etc.)")):
        assert causes_of(rotated=dead[start:])[0].cause == "unresolved"


def rank(host: str, pid: int, number: int, of: int, comm: str, devices: int, sockets: str = "eth0:192.0.2.1") -> str:
    head = f"{host}:{pid}:{pid + 9} [{number % 8}] NCCL INFO "
    network = (
        "NET/IB : Using " + "".join(f" [{index}]mlx5_{index}:1/IB" for index in range(devices)) + f"; OOB {sockets}<0>"
    )
    said = (
        f"Bootstrap: Using {sockets}<0>",
        "NCCL version 2.27.5+cuda12.9",
        network,
        f"comm 0x{pid}0 rank {number} nranks {of} cudaDev {number} nvmlDev {number} busId 1000 commId {comm} - Init START",
        f"comm 0x{pid}0 rank {number} nranks {of} cudaDev {number} nvmlDev {number} busId 1000 commId {comm} - Init COMPLETE",
    )
    return "".join(f"{head}{line}\n" for line in said)


ELSEWHERE = "".join(rank("gpu7", 300 + number, number, 4, "0xa1", 8) for number in range(4))
OF_TWO = rank("gpu1", 71, 0, 2, "0xb2", 2) + rank("gpu2", 72, 1, 2, "0xb2", 2)


def test_nodes_are_not_compared_with_those_of_another_job() -> None:
    seen = {cause.cause for cause in causes_of(one=OF_TWO, other=ELSEWHERE)}
    assert "hca-mismatch-between-nodes" not in seen
    uneven = rank("gpu1", 71, 0, 2, "0xb2", 2) + rank("gpu2", 72, 1, 2, "0xb2", 1)
    assert causes_of(one=uneven, other=ELSEWHERE)[0].cause == "hca-mismatch-between-nodes"
    apart = causes_of(one=rank("gpu1", 71, 0, 2, "0xb2", 2), two=rank("gpu2", 72, 1, 2, "0xb2", 1), other=ELSEWHERE)
    assert apart[0].cause == "hca-mismatch-between-nodes"


def test_groups_of_one_size_may_be_of_one_job() -> None:
    one = "".join(rank("gpu1", 70 + number, number, 2, "0xb2", 2) for number in range(2))
    two = "".join(rank("gpu2", 80 + number, number, 2, "0xc3", 1) for number in range(2))
    assert "hca-mismatch-between-nodes" in {cause.cause for cause in causes_of(one=one, two=two)}


def test_loopback_is_right_for_a_job_of_one_node() -> None:
    inside = "".join(rank("gpu1", 70 + number, number, 2, "0xb2", 0, "lo:127.0.0.1") for number in range(2))
    assert {cause.confidence for cause in causes_of(one=inside, other=ELSEWHERE)} == {"possible"}


def test_addresses_of_a_job_that_works_are_not_those_of_another_one() -> None:
    failed = "[rank1]: torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (198.51.100.4, 29500).\n"
    assert causes_of(failed=failed)[0].cause == "unresolved"
    assert causes_of(failed=failed, other=ELSEWHERE + TRAINS)[0].cause == "unresolved"


def test_every_process_alone_beside_a_job_of_several() -> None:
    alone = "".join(rank("gpu1", 70 + number, 0, 1, f"0xb{number}", 2) for number in range(4))
    assert causes_of(alone=alone)[0].cause == "rank-layout-wrong"
    assert causes_of(alone=alone, other=ELSEWHERE)[0].cause == "rank-layout-wrong"


STARVED = "".join(
    f"(EngineCore_DP0 pid=9) INFO 11-30 14:{minute}:28 [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work.\n"
    for minute in range(41, 45)
)


@pytest.mark.parametrize("other", [SERVES, TRAINS, ELSEWHERE], ids=["serves", "trains", "initialised"])
def test_an_engine_that_waits_to_the_end_is_not_covered_by_what_another_file_says(other: str) -> None:
    for files in ({"engine": STARVED, "other": other}, {"a": other, "engine": STARVED}):
        assert causes_of(**files)[0].cause == "unresolved"


def test_loopback_of_nccl_2_4_whose_communicators_name_no_bus() -> None:
    """An older release prints neither the start of a communicator nor its bus and id."""
    inside = "".join(
        f"gpu1:{70 + number}:{70 + number} [{number}] NCCL INFO Bootstrap : Using [0]lo:127.0.0.1<0>\n"
        f"gpu1:{70 + number}:{90 + number} [{number}] NCCL INFO comm 0x7f{number}0 rank {number} nranks 2 cudaDev {number} nvmlDev {number} - Init COMPLETE\n"
        for number in range(2)
    )
    assert {cause.confidence for cause in causes_of(one=inside, other=ELSEWHERE)} == {"possible"}


BANNER = "(APIServer pid=1) INFO 11-30 14:40:00 [utils.py:253] vLLM API server version {version}\n"


def test_versions_of_two_servers_that_each_came_up_are_of_two_jobs() -> None:
    one, two = (BANNER.format(version=version) + SERVES for version in ("0.11.0", "0.11.2"))
    causes = causes_of(one=one, two=two)
    assert causes[0].cause == "healthy"
    assert {cause.confidence for cause in causes if cause.cause == "version-mismatch"} <= {"possible"}


def test_versions_of_a_server_and_of_a_node_without_one_are_of_one_job() -> None:
    """What works with two versions today may not tomorrow."""
    node = "(MainProcess pid=2857) INFO 11-30 14:40:01 [serve.py:100] vLLM API server version 0.11.2\n"
    node += "(Worker_TP1 pid=3071) INFO 11-30 14:40:12 [default_loader.py:501] Loading weights took 0.01 seconds\n"
    causes = causes_of(one=BANNER.format(version="0.11.0") + SERVES, two=node)
    assert (causes[0].cause, causes[0].confidence) == ("version-mismatch", "likely")


def test_a_server_that_stands_beside_one_that_came_up() -> None:
    stands = BANNER.format(version="0.11.0") + (
        "(EngineCore_DP0 pid=9) INFO 11-30 14:40:09 [parallel_state.py:1208] world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://192.0.2.1:29500 backend=nccl\n"
        "(APIServer pid=1) DEBUG 11-30 14:41:06 [utils.py:1120] Waiting for 1 local, 0 remote core engine proc(s) to start.\n"
    )
    assert causes_of(stands=stands)[0].cause == "unresolved"
    assert causes_of(stands=stands, other=SERVES)[0].cause == "unresolved"


def test_a_named_cause_stays_first_and_is_not_sure_beside_a_job_that_works() -> None:
    failed = "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.40.0\n    Python: 3.11.9\nThis process on node 192.0.2.8 was started with:\n    Ray: 2.44.1\n    Python: 3.11.9\n"
    for other in ("", TRAINS):
        causes = causes_of(failed=failed, **({"other": other} if other else {}))
        assert causes[0].cause == "ray-version-mismatch"
        assert causes[0].confidence == ("likely" if other else "sure")


def test_each_file_outlives_its_own_noise() -> None:
    noise = "[W304 05:06:07.1 socket.cpp:755] [c10d] The client socket has failed to connect to [node0.example]:29500 (errno: 111 - Connection refused).\n"
    for good in (SERVES, TRAINS, "Training complete\n"):
        assert causes_of(one=noise + good, two=noise + good)[0].cause == "healthy"
        assert causes_of(one=noise + good, two=STANDS)[0].cause == "unresolved"


@pytest.mark.parametrize(
    "unknown",
    [
        "[ERROR] fabric-x: unit 3 raised condition 0x77 while it prepared its ring\n",
        "2026-03-04 05:06:07,891 acme.pool CRITICAL pool 3 is gone\n" + "it goes on\n" * 5,
        "Traceback (most recent call last):\n" + '  File "/opt/acme/pool.py", line 3, in main\n' + "TimeoutError\n",
        "acmectl: error: unit 3 is not there\n",
        "fatal: pool 3 is gone\n",
    ],
    ids=["last", "first", "traceback", "a program's", "fatal"],
)
def test_errors_that_nobody_knows_beside_a_job_that_works(unknown: str) -> None:
    cause = causes_of(unknown=unknown, good=TRAINS)[0]
    assert (cause.cause, cause.confidence) == ("unresolved", "possible")
    assert cause.summary.startswith("unknown: errors that are not known here")
    assert cause.evidence[0].source == "unknown"
    assert causes_of(one=unknown + TRAINS)[0].confidence == "likely"


@pytest.mark.parametrize(
    "facts",
    ["rx_errors: 0\n", "INFO finished with 0 errors\n", "log level: ERROR\n", 'note: "Error: none" was printed\n'],
)
def test_what_only_counts_or_mentions_errors(facts: str) -> None:
    assert [(cause.cause, cause.confidence) for cause in causes_of(facts=facts, good=TRAINS)] == [("healthy", "likely")]


def test_what_is_not_known_is_named_beside_what_works() -> None:
    files = {"good": TRAINS, "notes.txt": "pool 3 has 4 units\n"}
    found = of_streams(Stream(name, iter([text.encode()]), text.encode()) for name, text in files.items())
    cause = found.verdict.causes[0]
    assert cause.cause == "healthy" and "notes.txt nothing is known" in cause.summary
    assert any("notes.txt" in note for note in found.notes)
    alone = of_streams([Stream("good", iter([TRAINS.encode()]), TRAINS.encode())])
    assert not alone.notes and "known" not in alone.verdict.causes[0].summary
