"""Stages from frames and log lines, of every executor and of versions that are not known."""

from __future__ import annotations

import pytest

from ncdiag.model import Frame
from ncdiag.stages import STAGES, WAITING, describe, order, stage_of_log, stage_of_log_line, stage_of_threads
from ncdiag.stages.match import function
from ncdiag.stages.waits import wait_of_kernel


def threads(*frames: str, name: str = "MainThread") -> list[dict[str, object]]:
    """`function@file`, innermost first; `~` a native one."""
    made = []
    for text in frames:
        called, _, file = text.lstrip("~").partition("@")
        made.append(Frame(called, file, 1, text.startswith("~")))
    return [{"name": name, "active": False, "main": name == "MainThread", "frames": made}]


V0, V1 = "vllm/worker/worker.py", "vllm/v1/worker/gpu_worker.py"
CASES = {
    "0.6 worker waits for orders": (
        ("get@multiprocessing/queues.py", "_run_worker_process@vllm/executor/multiproc_worker_utils.py"),
        "worker",
        "ready",
        "orders",
    ),
    "0.6 store": (
        (
            "_create_c10d_store@torch/distributed/rendezvous.py",
            "init_process_group@torch/distributed/distributed_c10d.py",
            f"init_device@{V0}",
        ),
        "worker",
        "rendezvous",
        "store",
    ),
    "0.6 load": (
        ("get_model@vllm/model_executor/model_loader/loader.py", f"load_model@{V0}"),
        "worker",
        "load-weights",
        None,
    ),
    "0.6 profile": (
        ("forward@vllm/model_executor/models/llama.py", f"determine_num_available_blocks@{V0}"),
        "worker",
        "profile",
        None,
    ),
    "0.6 capture": (("capture_model@vllm/worker/model_runner.py",), "worker", "graph-capture", None),
    "0.6 front end": (
        ("poll@zmq/asyncio.py", "_wait_for_server_rpc@vllm/engine/multiprocessing/client.py"),
        "api-server",
        "wait-engine",
        "engine",
    ),
    "unqualified names of an old Python": (
        (
            "wait_until_ready@vllm/distributed/device_communicators/shm_broadcast.py",
            "worker_main@vllm/v1/executor/multiproc_executor.py",
        ),
        "worker",
        "message-queues",
        "queue",
    ),
    "uniproc": (
        (
            "~cudaMalloc",
            f"init_device@{V1}",
            "init_device@vllm/v1/executor/uniproc_executor.py",
            "EngineCore.__init__@vllm/v1/engine/core.py",
        ),
        "engine-core",
        "init-device",
        None,
    ),
    "old Ray executor": (
        ("get@ray/_private/worker.py", "_init_workers_ray@vllm/executor/ray_distributed_executor.py"),
        "engine-core",
        "wait-workers",
        "workers",
    ),
    "Ray V2": (
        ("get@ray/_private/worker.py", "RayExecutorV2._init_executor@vllm/v1/executor/ray_executor_v2.py"),
        "engine-core",
        "wait-workers",
        "workers",
    ),
    "Ray placement": (
        ("wait@ray/_private/worker.py", "_wait_until_pg_ready@vllm/executor/ray_utils.py"),
        "engine-core",
        "ray-placement",
        "cluster",
    ),
    "Ray connect": (
        ("init@ray/_private/worker.py", "initialize_ray_cluster@vllm/v1/executor/ray_utils.py"),
        "engine-core",
        "ray-connect",
        "cluster",
    ),
    "Ray actor before its first call": (("main_loop@ray/_private/worker.py",), "ray-worker", "ray-actor", "orders"),
    "headless": (
        (
            "wait@multiprocessing/connection.py",
            "WorkerProc.wait_for_ready@vllm/v1/executor/multiproc_executor.py",
            "run_headless@vllm/entrypoints/cli/serve.py",
        ),
        "headless",
        "wait-workers",
        "workers",
    ),
    "torchrun": (
        ("wait@x.py", "_invoke_run@torch/distributed/elastic/agent/server/api.py"),
        "launcher",
        "wait-workers",
        "workers",
    ),
    "torchrun waits for nodes": (
        ("next_rendezvous@torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",),
        "launcher",
        "rendezvous",
        "store",
    ),
    "external launcher": (
        (
            "~waitForWorkers",
            "_create_c10d_store@torch/distributed/rendezvous.py",
            "init_process_group@torch/distributed/distributed_c10d.py",
            f"init_device@{V1}",
        ),
        "script",
        "rendezvous",
        "store",
    ),
    "pynccl init": (
        (
            "NCCLLibrary.ncclCommInitRank@vllm/distributed/device_communicators/pynccl_wrapper.py",
            "PyNcclCommunicator._init_comm@vllm/distributed/device_communicators/pynccl.py",
            "initialize_model_parallel@vllm/distributed/parallel_state.py",
        ),
        "worker",
        "nccl-init",
        "peers",
    ),
    "unique id": (
        (
            "broadcast@torch/distributed/distributed_c10d.py",
            "__init__@vllm/distributed/device_communicators/pynccl.py",
            "initialize_model_parallel@vllm/distributed/parallel_state.py",
        ),
        "worker",
        "nccl-init",
        "peers",
    ),
    "NCCL of a script": (
        (
            "~poll",
            "~ncclSocketPollConnect",
            "~socketTryAccept",
            "~bootstrapInit(int, void*)",
            "~ncclCommInitRankFunc",
            "all_reduce@torch/distributed/distributed_c10d.py",
            "main@/home/u/train.py",
        ),
        "script",
        "nccl-init",
        "peers",
    ),
    "gloo mesh native": (
        (
            "~gloo::transport::tcp::Pair::waitUntilConnected",
            "~gloo::rendezvous::Context::connectFullMesh",
            "new_group@torch/distributed/distributed_c10d.py",
            "main@/home/u/train.py",
        ),
        "script",
        "groups",
        "peers",
    ),
    "work.wait of a script": (
        ("~gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::chrono::duration<long>)", "main@/home/u/train.py"),
        "script",
        "collective",
        "peers",
    ),
    "DDP sums its gradients": (
        (
            "~pthread_cond_wait",
            "~std::condition_variable::wait",
            "~c10d::Reducer::finalize_backward",
            "_engine_run_backward@torch/autograd/graph.py",
            "step@/home/u/train.py",
        ),
        "script",
        "collective",
        "peers",
    ),
    "DDP is made": (
        ("_verify_param_shape_across_processes@torch/distributed/utils.py", "model@/home/u/train.py"),
        "script",
        "collective",
        "peers",
    ),
    "a handle of a collective": (
        ("~std::condition_variable::wait", "~c10d::Work::wait", "step@/home/u/train.py"),
        "script",
        "collective",
        "peers",
    ),
    "a handle of gloo's own": (
        ("~pthread_cond_wait", "~c10d::ProcessGroupGloo::AsyncWork::wait(long)", "step@/home/u/train.py"),
        "script",
        "collective",
        "peers",
    ),
    "a condition that is no collective's": (
        ("~std::condition_variable::wait", "~mylib::Queue::wait", "step@/home/u/train.py"),
        "script",
        "program",
        None,
    ),
    "FSDP gathers": (
        ("all_gather_single@torch/distributed/distributed_c10d.py", "step@/home/u/train.py"),
        "script",
        "collective",
        "peers",
    ),
    "a task that Ray's worker runs": (
        ("~time_sleep", "Shard.__init__@/home/u/x.py", "Worker.main_loop@ray/_private/worker.py"),
        "ray-worker",
        "program",
        "sleep",
    ),
    "a worker of Ray without a task": (
        ("~epoll_wait", "Worker.main_loop@ray/_private/worker.py", "<module>@ray/_private/workers/default_worker.py"),
        "ray-worker",
        "ray-actor",
        "orders",
    ),
    "a program that asks Ray": (
        ("get@ray/_private/worker.py", "main@/home/u/x.py"),
        "script",
        "wait-workers",
        "workers",
    ),
    "GPU wait of a script": (
        ("~cuStreamSynchronize", "~at::native::item", "main@/home/u/train.py"),
        "script",
        "collective",
        "gpu",
    ),
    "loader inside a step": (
        ("~do_futex_wait", "Condition.wait@threading.py", "main@/home/u/train.py"),
        "script",
        "program",
        "lock",
    ),
    "download": (
        (
            "recv_into@ssl.py",
            "snapshot_download@huggingface_hub/_snapshot_download.py",
            "download_weights_from_hf@vllm/model_executor/model_loader/weight_utils.py",
            f"load_model@{V1}",
        ),
        "worker",
        "download",
        "hub",
    ),
    "download by a library of another version": (
        (
            "read@httpcore/_backends/sync.py",
            "_receive_event@httpcore/_sync/http11.py",
            "handle_request@httpcore/_sync/http11.py",
            "handle_request@httpcore/_sync/connection_pool.py",
            "send@httpx/_client.py",
            "hf_hub_download@huggingface_hub/file_download.py",
            "main@/home/u/fetch.py",
        ),
        "script",
        "program",
        "hub",
    ),
    "lock of another download": (
        ("acquire@filelock/_api.py", "get_lock@vllm/x.py", f"load_model@{V1}"),
        "worker",
        "load-weights",
        "lock",
    ),
    "name look-up in the store": (
        (
            "~poll",
            "~__res_context_send",
            "~getnameinfo",
            "~c10d::TCPStore::TCPStore",
            "_create_c10d_store@torch/distributed/rendezvous.py",
        ),
        "worker",
        "rendezvous",
        "dns",
    ),
    "a function that a process was made for": (
        (
            "~lock_PyThread_acquire_lock",
            "train@/home/u/train.py",
            "_wrap@torch/multiprocessing/spawn.py",
            "BaseProcess.run@multiprocessing/process.py",
            "BaseProcess._bootstrap@multiprocessing/process.py",
            "_main@multiprocessing/spawn.py",
            "spawn_main@multiprocessing/spawn.py",
            "<module>@<string>",
        ),
        "script",
        "program",
        "lock",
    ),
    "a process that was made and has nothing yet": (
        ("read@multiprocessing/reduction.py", "spawn_main@multiprocessing/spawn.py", "<module>@<string>"),
        "script",
        "start",
        None,
    ),
    "a program in the command line": (
        ("~lock_PyThread_acquire_lock", "<module>@<string>"),
        "script",
        "program",
        "lock",
    ),
    "imports": (
        ("<module>@torch/_inductor/codecache.py", "_find_and_load@<frozen importlib._bootstrap>", "<module>@vllm/x.py"),
        "worker",
        "import",
        None,
    ),
    "serving": (
        (
            "dequeue@vllm/distributed/device_communicators/shm_broadcast.py",
            "get_response@vllm/v1/executor/multiproc_executor.py",
            "MultiprocExecutor.execute_model@vllm/v1/executor/multiproc_executor.py",
            "EngineCore.step@vllm/v1/engine/core.py",
        ),
        "engine-core",
        "serving",
        "workers",
    ),
    "a vLLM that nobody knows yet": (
        ("sleep@vllm/v9/engine/new.py", "run@vllm/v9/engine/new.py"),
        "worker",
        "unknown",
        None,
    ),
    "a store call of an unknown vLLM": (
        ("_create_c10d_store@torch/distributed/rendezvous.py", "meet@vllm/v9/new.py"),
        "worker",
        "rendezvous",
        "store",
    ),
    "nothing known": (("f@/home/u/x.py",), "script", "program", None),
}


@pytest.mark.parametrize("case", CASES)
def test_stage(case: str) -> None:
    frames, role, stage, waiting = CASES[case]
    match = stage_of_threads(threads(*frames), role)
    assert (match.stage, match.waiting) == (stage, waiting)
    assert match.why is not None


def test_no_threads() -> None:
    assert stage_of_threads([], "worker").stage == "unknown"
    assert stage_of_threads([{"name": "x", "active": False, "main": True, "frames": []}]).stage == "unknown"


def test_another_thread_speaks_when_the_main_one_says_nothing() -> None:
    idle = threads("main_loop@ray/_private/worker.py")
    actor = threads("_create_c10d_store@torch/distributed/rendezvous.py", name="AsyncIO Thread: default")
    assert stage_of_threads([*idle, *actor], "ray-worker").stage == "rendezvous"


LINES = {
    "(APIServer pid=1) INFO [api_server.py:1] vLLM API server version 0.9.2": "config",
    "INFO 01-01 [core.py:5] Initializing a V1 LLM engine (v0.11.2) with config: model=x": "engine-init",
    "(EngineCore_DP0 pid=1) INFO Waiting for creating a placement group of specs for 10 seconds. specs=[{'GPU': 1.0}]": "ray-placement",
    "INFO DP group leader: node_rank=0, node_rank_within_dp=0": "wait-workers",
    "(Worker pid=9) INFO world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.77.0.1:1 backend=nccl": "rendezvous",
    "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1": "groups",
    "(VllmWorker rank=0 pid=5) INFO vLLM is using nccl==2.27.5": "nccl-init",
    "(Worker_TP0 pid=9) INFO Starting to load model /m...": "load-weights",
    "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03]": "load-weights",
    "INFO Dynamo bytecode transform time: 5.1 s": "compile",
    "INFO GPU KV cache size: 1,234,567 tokens": "kv-cache",
    "INFO # GPU blocks: 100, # CPU blocks: 10": "kv-cache",
    "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  10%|#": "graph-capture",
    "INFO:     Application startup complete.": "ready",
    "[2025-01-01 10:00:00 TP0] Load weight begin. avail mem=78.0 GB": "load-weights",
    "[2025-01-01 10:00:00 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=9.1 GB": "graph-capture",
    "[2025-01-01 10:02:00] The server is fired up and ready to roll!": "ready",
    "INFO 10.77.0.1:1 - GET /v1/models 200": None,
    "Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.": None,
}


@pytest.mark.parametrize("line", LINES)
def test_log_line(line: str) -> None:
    assert stage_of_log_line(line) == LINES[line]


BEGUN = [
    "n:7:7 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.1<0>",
    "n:7:7 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init START",
]
MADE = [*BEGUN, "n:7:7 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init COMPLETE"]
USED = ["n:7:7 [0] NCCL INFO NET/Socket : Connected to proxy", "n:7:7 [0] NCCL INFO Connected all rings"]


@pytest.mark.parametrize(
    ("lines", "stage"),
    [
        ([], None),
        (BEGUN, "nccl-init"),
        (MADE, None),
        ([*MADE, *USED], None),
        ([*MADE, *BEGUN], "nccl-init"),
        ([*MADE, "INFO Starting to load model /models/m..."], "load-weights"),
        (["INFO Starting to load model /models/m...", *MADE], None),
    ],
)
def test_a_communicator_that_is_made_is_no_stage(lines: list[str], stage: str | None) -> None:
    assert stage_of_log(lines) == stage


def test_order_and_words() -> None:
    names = [stage.name for stage in STAGES]
    assert len(set(names)) == len(names) and [order(name) for name in names] == list(range(len(names)))
    assert (
        order("rendezvous")
        < order("mesh")
        < order("nccl-init")
        < order("load-weights")
        < order("graph-capture")
        < order("ready")
    )
    assert all(describe(name) for name in names) and all(WAITING.values())


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("WorkerProc.wait_for_ready", "wait_for_ready"),
        ("f.<locals>.wrapper", "wrapper"),
        ("<module>", "<module>"),
        ("c10d::TCPStore::waitForWorkers()", "waitForWorkers"),
        ("gloo::(anonymous namespace)::run<int>(std::string const&)", "run"),
        ("bootstrapInit(int, ncclBootstrapHandle*, ncclComm*) [clone .cold]", "bootstrapInit"),
        ("poll@GLIBC_2.2", "poll"),
    ],
)
def test_bare_names(name: str, bare: str) -> None:
    assert function(name) == bare


@pytest.mark.parametrize(
    ("wchan", "syscall", "kind"),
    [
        ("futex_wait_queue", "", "lock"),
        ("anon_pipe_read", "", "pipe"),
        ("wait_for_partner", "", "pipe"),
        ("fuse_get_req", "", "disk"),
        ("rpc_wait_bit_killable", "", "disk"),
        ("hrtimer_nanosleep", "", "sleep"),
        ("0", "", None),
        ("", "openat 0xffffff9c", "disk"),
        ("", "wait4(0x1)", "child"),
        ("kernel_clone", "", "child"),
        ("", "running", None),
        ("ep_poll", "", None),
    ],
)
def test_kernel_waits(wchan: str, syscall: str, kind: str | None) -> None:
    assert wait_of_kernel(wchan, syscall) == kind


def test_a_program_at_its_end_names_the_thread_that_is_not() -> None:
    made = threads("~lock_PyThread_acquire_lock", "_shutdown@threading.py") + threads(
        "~time_sleep",
        "report@/home/u/train.py",
        "Thread.run@threading.py",
        "Thread._bootstrap@threading.py",
        name="metrics",
    )
    match = stage_of_threads(made, "script")
    assert (match.stage, match.waiting) == ("shutdown", "lock")
    assert match.detail.endswith("a thread of it is not, at report (train.py:1)")
