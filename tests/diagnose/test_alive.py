"""What a run outlives did not end it; what another run shows says nothing about the one before."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import diagnose

ERROR = "libfabric: cannot pin: RLIMIT_MEMLOCK is too low"
RUN = "# nThread 1 nGpus 1 minBytes 8 maxBytes 32 step: 2(factor) warmup iters: 5 iters: 20"
ROWS = "\n".join(
    f"{1 << n:>12} {1 << n - 2:>12}     float     sum      -1   400.10   20.96   20.96      0" for n in range(20, 25)
)
DONE = "# Avg bus bandwidth    : 20.96"


def first(tmp_path, *lines: str) -> tuple[str, str]:
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines) + "\n")
    cause = diagnose([str(path)]).verdict.causes[0]
    return cause.cause, cause.confidence


def test_alone_it_is_sure(tmp_path) -> None:
    assert first(tmp_path, ERROR) == ("memlock-limit", "sure")


@pytest.mark.parametrize("lines", [(ERROR, RUN, ROWS, DONE), (RUN, ERROR, ROWS), (RUN, ROWS, DONE, ERROR, RUN, ROWS)])
def test_results_follow(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] == "healthy"


@pytest.mark.parametrize(
    "lines",
    [
        ("$ mpirun -np 2 ./all_reduce_perf -g 1", ERROR, "$ mpirun -np 2 -x A=1 ./all_reduce_perf -g 1", RUN, ROWS, DONE),
        (RUN, ERROR, RUN, ROWS, DONE),
        (ERROR, "mpirun noticed that process rank 1 exited on signal 11", RUN, ROWS, DONE),
        (RUN, ROWS, DONE, ERROR),
        ("n1$ cat ucx.txt", ERROR, "user@n1:~$ cat job.log", RUN, ROWS, DONE),
    ],
)  # fmt: skip
def test_another_run_works(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] != "healthy"


def test_trouble_follows_the_results(tmp_path) -> None:
    late = "node7 kernel: NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus."
    path = tmp_path / "job.log"
    path.write_text("\n".join([ERROR, RUN, ROWS, late]) + "\n")
    causes = {cause.cause: cause.confidence for cause in diagnose([str(path)]).verdict.causes}
    assert causes["memlock-limit"] != "sure" and "gpu-hardware-fault" in causes


CLOSED = "[rank3]:[W1 10:00:09.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=7, addr=[n1]:401, remote=[n1]:29400): Connection reset by peer"
STEPPED = tuple(f"iteration {n}/ 40 | lm loss: 2.{n}" for n in (10, 20, 30))


@pytest.mark.parametrize(
    "lines",
    [
        (*STEPPED, "iteration 40/ 40 | lm loss: 2.4", CLOSED),
        (*STEPPED, "{'train_runtime': 812.1, 'train_loss': 2.4}", CLOSED),
        (*STEPPED, CLOSED, "771    train  2  COMPLETED      0:0   00:29:02   n1"),
    ],
)
def test_connections_close_after_the_end(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] == "healthy"


@pytest.mark.parametrize(
    "lines",
    [
        (*STEPPED, CLOSED),
        (*STEPPED, "iteration 40/ 40 | lm loss: 2.4", "iteration 1/ 40 | lm loss: 2.4", CLOSED),
        (*STEPPED, "iteration 40/ 40 | lm loss: 2.4", "[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLGATHER, NumelIn=1)"),
        (*STEPPED, CLOSED, "771    train  2  COMPLETED  0:0  n1", "771.0  train  2  FAILED  1:0  n1"),
    ],
)  # fmt: skip
def test_what_is_not_the_end(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] != "healthy"


TRIAL = "./all_reduce_perf -b 8 -e 128M -g 2"


@pytest.mark.parametrize(
    ("setting", "cause"),
    [("NCCL_P2P_DISABLE=1", "p2p-broken"), ("NCCL_NVLS_ENABLE=0", "nvls-multicast-failure"), ("NCCL_CUMEM_ENABLE=0", "cumem-failure")],
)  # fmt: skip
def test_a_setting_makes_it_work(tmp_path, setting: str, cause: str) -> None:
    assert first(tmp_path, f"$ {TRIAL}", RUN, "^C", f"$ {setting} {TRIAL}", RUN, ROWS, DONE) == (cause, "likely")
    assert first(tmp_path, RUN, f"$ {setting} {TRIAL}", RUN, ROWS, DONE) == (cause, "likely")


@pytest.mark.parametrize(
    "lines",
    [
        ("$ ray start --head", f"$ NCCL_SOCKET_IFNAME=eth0 {TRIAL}", RUN, ROWS, DONE),
        (f"$ {TRIAL}", RUN, ROWS, DONE, f"$ NCCL_P2P_DISABLE=1 {TRIAL}", RUN, ROWS, DONE),
        (f"$ NCCL_P2P_DISABLE=0 {TRIAL}", RUN, ROWS, DONE),
    ],
)
def test_a_setting_says_nothing_without_a_run_that_fails(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] == "healthy"


def test_said_again_after_the_results(tmp_path) -> None:
    assert first(tmp_path, RUN, *[ERROR] * 20, ROWS, *[ERROR] * 20)[0] == "memlock-limit"


@pytest.mark.parametrize("stamp", ["[  812.123456] ", "[Thu Jan  1 00:00:01 2026] ", "Jan  1 00:00:01 n1 kernel: "])
def test_a_line_of_the_kernel_is_a_fact(tmp_path, stamp: str) -> None:
    xid = f"{stamp}NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus."
    assert first(tmp_path, xid, RUN, ROWS)[0] == "gpu-hardware-fault"


@pytest.mark.parametrize(
    "step",
    [
        " iteration      {n}/     500 | consumed samples: 64 | lm loss: 1.{n}E+01 | grad norm: 3.2 |",
        "step: {n}  loss: 9.{n}  memory: 40.1GiB(50%)  tps: 900  mfu: 40.1%",
        "{{'loss': 2.{n}, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.{n}}}",
        "Epoch: [0][{n}0/5005]\tTime  0.2 ( 0.3)\tLoss 6.9{n}e+00 (7.0e+00)",
        "steps: {n} loss: 2.3{n} iter time (s): 1.2 samples/sec: 10.1",
    ],
)
def test_steps_of_trainings(tmp_path, step: str) -> None:
    assert first(tmp_path, ERROR, *[step.format(n=n) for n in range(1, 5)])[0] == "healthy"


def test_quiet_success_after_an_interrupted_run_is_a_hint(tmp_path) -> None:
    lines = ("$ torchrun --nproc-per-node 2 t.py", "^C", "$ NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 t.py", "ok")
    assert first(tmp_path, *lines) == ("p2p-broken", "possible")


def test_an_interrupted_run_is_not_healthy(tmp_path) -> None:
    ready = "n1:{r}:9 [{r}] NCCL INFO ncclCommInitRank comm 0x{r} rank {r} nranks 2 cudaDev {r} nvmlDev {r} busId 1b000 commId 0x77 - Init COMPLETE"
    lines = [ready.format(r=rank) for rank in (0, 1)]
    assert first(tmp_path, *lines)[0] == "healthy"
    assert first(tmp_path, *lines, "^CTraceback (most recent call last):")[0] == "unresolved"


CAUGHT = (
    "Traceback (most recent call last):",
    '  File "/x/vllm/entrypoints/openai/serving_chat.py", line 200, in create_chat_completion',
    "ValueError: the request is longer than the context",
)
ANSWER = 'INFO:     192.0.2.8:5000 - "POST /v1/completions HTTP/1.1" 200 OK'
UP = "INFO:     Application startup complete."


def test_an_exception_that_the_run_outlives_was_caught(tmp_path) -> None:
    assert first(tmp_path, UP, ANSWER, *CAUGHT, ANSWER, ANSWER, ANSWER)[0] == "healthy"
    assert first(tmp_path, STEPPED[0], *CAUGHT, *STEPPED[1:], "iteration 40/ 40 | lm loss: 2.1")[0] == "healthy"


@pytest.mark.parametrize(
    "lines",
    [
        (UP, ANSWER, *CAUGHT, ANSWER),
        (UP, ANSWER, *CAUGHT, "EngineCore encountered a fatal error.", ANSWER, ANSWER, ANSWER),
        (*STEPPED, *CAUGHT, *STEPPED),
        (*STEPPED, *CAUGHT, "iteration 40/ 40 | lm loss: 2.1"),
    ],
)
def test_an_exception_that_ended_something(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] == "engine-exception"


@pytest.mark.parametrize(
    "line",
    [
        "WARNING 05-01 10:00:00 [x.py:1] NVML Shared Library Not Found",
        "/opt/x.py:4: UserWarning: NVML Shared Library Not Found",
        "2026-01-01 10:00:00,100 [INFO] probe: NVML Shared Library Not Found",
        "time=2026 level=warning msg=NVML Shared Library Not Found",
    ],
)
def test_what_only_warns_is_not_sure(tmp_path, line: str) -> None:
    assert first(tmp_path, line) == ("driver-library-missing", "likely")
    assert first(tmp_path, "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found")[1] == "sure"
    assert first(tmp_path, "n1:7:8 [0] misc/nvmlwrap.cc:101 NCCL WARN Failed to open libnvidia-ml.so.1")[1] == "sure"


def test_the_same_message_of_another_node_of_a_job_that_works(tmp_path) -> None:
    (tmp_path / "n1.log").write_text("\n".join([ERROR, RUN, ROWS, DONE]) + "\n")
    (tmp_path / "n2.log").write_text(ERROR + "\n")
    assert diagnose([str(tmp_path)]).verdict.causes[0].cause == "healthy"
    (tmp_path / "n2.log").write_text("libibverbs: Warning: no userspace device\npynvml.NVMLError_LibraryNotFound\n")
    causes = {cause.cause: cause.confidence for cause in diagnose([str(tmp_path)]).verdict.causes}
    assert causes["driver-library-missing"] == "likely", "which of the two files is later is not known"


def test_a_time_out_ends_the_run_that_the_setting_mends(tmp_path) -> None:
    step = "step {n}/10 loss=2.{n}"
    timeout = "[rank0]:[E1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    again = [step.format(n=n) for n in range(4)]
    lines = ["$ torchrun --nproc-per-node 2 t.py", timeout, "$ NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 t.py"]
    assert first(tmp_path, *lines, *again) == ("p2p-broken", "likely")


def test_a_training_that_is_cut_off_is_no_more_than_possibly_healthy(tmp_path) -> None:
    steps = [f"step {step} loss 0.{99 - step}" for step in range(1, 20)]
    assert first(tmp_path, *steps, "ste") == ("healthy", "possible")
    assert first(tmp_path, *steps, "Training complete") == ("healthy", "likely")


def _start(pids: tuple[int, int], setting: str = "", whole: bool = True) -> list[str]:
    """What NCCL prints of two ranks that come up, over each other's memory."""
    lines = [f"w:{pid}:{pid} [{rank}] NCCL INFO {setting}" for rank, pid in enumerate(pids) if setting]
    for what in ("START", "COMPLETE"):
        lines += [
            f"w:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm 0x{pid} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId 0x{pids[0]}ab - Init {what}"
            for rank, pid in enumerate(pids)
            if whole or rank == 0
        ]
    return lines


UP = "INFO:     Application startup complete."
OFF = "NCCL_P2P_DISABLE set by environment to 1."


def test_a_second_start_without_a_command_line(tmp_path) -> None:
    assert first(tmp_path, *_start((80, 81)), "# stopped", *_start((90, 91), OFF), UP) == ("p2p-broken", "likely")


@pytest.mark.parametrize(
    "lines",
    [
        [*_start((80, 81)), UP, *_start((90, 91), OFF), UP],  # the first one worked, too
        [*_start((80, 81), OFF), "# stopped", *_start((90, 91), OFF), UP],  # nothing was changed
        [*_start((80, 81), whole=False), *_start((90, 91), OFF), UP],  # not all ranks of the first one are here
    ],
)
def test_a_second_start_that_says_nothing_of_the_first(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] != "p2p-broken"


def test_a_first_start_that_ended_for_a_reason_of_its_own(tmp_path) -> None:
    full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 2.00 GiB is free."
    (tmp_path / "job.log").write_text("\n".join([*_start((80, 81)), full, *_start((90, 91), OFF), UP]) + "\n")
    causes = {cause.cause: cause.confidence for cause in diagnose([str(tmp_path)]).verdict.causes}
    assert causes.get("p2p-broken", "possible") == "possible", causes
