"""Rank states by hand: a place in the start-up as its frames, sockets as short text."""

from __future__ import annotations

from typing import Any

from ncdiag.model import Frame, Progress, RankState, Socket

_TORCH = "torch/distributed/distributed_c10d.py"
_WORKER = [
    "init_device@vllm/v1/worker/gpu_worker.py",
    "WorkerProc.__init__@vllm/v1/executor/multiproc_executor.py",
    "WorkerProc.worker_main@vllm/v1/executor/multiproc_executor.py",
]
_GROUPS = ["initialize_model_parallel@vllm/distributed/parallel_state.py", *_WORKER]
_PYNCCL = [
    "PyNcclCommunicator.__init__@vllm/distributed/device_communicators/pynccl.py",
    "CudaCommunicator.__init__@vllm/distributed/device_communicators/cuda_communicator.py",
    *_GROUPS,
]
_QUEUE = "MessageQueue.wait_until_ready@vllm/distributed/device_communicators/shm_broadcast.py"
_EXECUTOR = "MultiprocExecutor._init_executor@vllm/v1/executor/multiproc_executor.py"
_TRAIN = ["step@/home/user/train.py", "<module>@/home/user/train.py"]

PLACES = {
    "store-key": ["~c10d::TCPStore::doWait", "~c10d::TCPStore::wait", *_TRAIN],
    "ray-get": ["get@ray/_private/worker.py", *_TRAIN],
    "ray-get-in-actor": ["get@ray/_private/worker.py", *_TRAIN, "Worker.main_loop@ray/_private/worker.py"],
    "ray-constructor": ["~open64", *_TRAIN, "Worker.main_loop@ray/_private/worker.py"],
    "at-exit": ["~lock_PyThread_acquire_lock", "_shutdown@threading.py"],
    "ray-idle": ["~epoll_wait", "Worker.main_loop@ray/_private/worker.py"],
    "store": [
        "_create_c10d_store@torch/distributed/rendezvous.py",
        "_tcp_rendezvous_handler@torch/distributed/rendezvous.py",
        "init_process_group@" + _TORCH,
        "init_distributed_environment@vllm/distributed/parallel_state.py",
        *_WORKER,
    ],
    "mesh": ["_new_process_group_helper@" + _TORCH, "init_process_group@" + _TORCH, *_WORKER],
    "groups": [
        "_new_process_group_helper@" + _TORCH,
        "new_group@" + _TORCH,
        "GroupCoordinator.__init__@vllm/distributed/parallel_state.py",
        *_GROUPS,
    ],
    "group-queue": [
        "Socket.recv@zmq/sugar/socket.py",
        _QUEUE,
        "MessageQueue.create_from_process_group@vllm/distributed/device_communicators/shm_broadcast.py",
        *_GROUPS,
    ],
    "queue": [
        "Socket.recv@zmq/sugar/socket.py",
        _QUEUE,
        "WorkerProc.worker_main@vllm/v1/executor/multiproc_executor.py",
    ],
    "executor-queue": [
        "Socket.recv@zmq/sugar/socket.py",
        _QUEUE,
        _EXECUTOR,
        "EngineCore.__init__@vllm/v1/engine/core.py",
    ],
    "ring-accept": [
        "~poll",
        "~socketTryAccept",
        "~bootstrapInit",
        "~ncclCommInitRankFunc",
        "~ncclCommInitRank",
        "NCCLLibrary.ncclCommInitRank@vllm/distributed/device_communicators/pynccl_wrapper.py",
        *_PYNCCL,
    ],
    "ring-connect": [
        "~nanosleep",
        "~socketRingConnect",
        "~bootstrapInit",
        "~ncclCommInitRankFunc",
        "~ncclCommInitRank",
        "NCCLLibrary.ncclCommInitRank@vllm/distributed/device_communicators/pynccl_wrapper.py",
        *_PYNCCL,
    ],
    "load": [
        "safetensors_weights_iterator@vllm/model_executor/model_loader/weight_utils.py",
        "DefaultModelLoader.load_weights@vllm/model_executor/model_loader/default_loader.py",
        "Worker.load_model@vllm/v1/worker/gpu_worker.py",
    ],
    "compile": [
        "compile@torch/_inductor/compile_fx.py",
        "VllmBackend.__call__@vllm/compilation/backends.py",
        "GPUModelRunner.profile_run@vllm/v1/worker/gpu_model_runner.py",
        "Worker.determine_available_memory@vllm/v1/worker/gpu_worker.py",
    ],
    "capture": [
        "capture_model@vllm/v1/worker/gpu_model_runner.py",
        "compile_or_warm_up_model@vllm/v1/worker/gpu_worker.py",
    ],
    "profile-sync": [
        "~cudaStreamSynchronize",
        "synchronize@torch/cuda/__init__.py",
        "GPUModelRunner.profile_run@vllm/v1/worker/gpu_model_runner.py",
        "Worker.determine_available_memory@vllm/v1/worker/gpu_worker.py",
    ],
    "execute": [
        "all_reduce@" + _TORCH,
        "Worker.execute_model@vllm/v1/worker/gpu_worker.py",
        "WorkerProc.worker_busy_loop@vllm/v1/executor/multiproc_executor.py",
    ],
    "idle": [
        "MessageQueue.acquire_read@vllm/distributed/device_communicators/shm_broadcast.py",
        "MessageQueue.dequeue@vllm/distributed/device_communicators/shm_broadcast.py",
        "WorkerProc.worker_busy_loop@vllm/v1/executor/multiproc_executor.py",
    ],
    "wait-ready": [
        "wait@multiprocessing/connection.py",
        "WorkerProc.wait_for_ready@vllm/v1/executor/multiproc_executor.py",
        _EXECUTOR,
        "EngineCore.__init__@vllm/v1/engine/core.py",
    ],
    "wait-engine": [
        "Poller.poll@zmq/sugar/poll.py",
        "wait_for_engine_startup@vllm/v1/engine/utils.py",
        "launch_core_engines@vllm/v1/engine/utils.py",
    ],
    "handshake": ["Poller.poll@zmq/sugar/poll.py", "EngineCoreProc.startup_handshake@vllm/v1/engine/core.py"],
    "placement": [
        "wait@ray/_private/worker.py",
        "_wait_until_pg_ready@vllm/v1/executor/ray_utils.py",
        "initialize_ray_cluster@vllm/v1/executor/ray_utils.py",
    ],
    "torchrun": [
        "sleep@torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
        "next_rendezvous@torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
        "_rendezvous@torch/distributed/elastic/agent/server/api.py",
    ],
    "config-read": [
        "from_pretrained@transformers/configuration_utils.py",
        "create_engine_config@vllm/engine/arg_utils.py",
    ],
    "all-reduce": ["all_reduce@" + _TORCH, *_TRAIN],
    "cuda-sync": ["~cudaStreamSynchronize", "~at::native::item", *_TRAIN],
    "loader": [
        "~do_futex_wait",
        "Condition.wait@threading.py",
        "Queue.get@queue.py",
        "_MultiProcessingDataLoaderIter._get_data@/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
        *_TRAIN,
    ],
    "own": _TRAIN,
    "own-late": ["~clock_nanosleep", *_TRAIN],
}
"""Name -> frames, innermost first: `function@file`, `~` a native one."""


def threads(place: str, line: int = 10) -> list[dict[str, Any]]:
    """The main thread in one of PLACES."""
    frames = []
    for text in PLACES[place]:
        name, _, file = text.lstrip("~").partition("@")
        frames.append(Frame(name, file or "libnccl.so.2", line, text.startswith("~")))
    return [{"name": "MainThread", "active": False, "main": True, "frames": frames}]


def sockets(*texts: str) -> list[Socket]:
    """`LISTEN 10.77.0.1:29500`, `ESTABLISHED 10.77.0.1:5 10.77.0.2:6 send=48`."""
    found = []
    for text in texts:
        words = text.split()
        sent = next((int(word[5:]) for word in words if word.startswith("send=")), 0)
        found.append(Socket(words[0], words[1], words[2] if len(words) > 2 and "=" not in words[2] else "", sent))
    return found


STILL = Progress(3.0, frames_changed=False)
"""Three seconds in which nothing moved."""


def rank(
    number: int | None,
    node: str,
    place: str | None,
    *texts: str,
    world: int = 2,
    line: int = 10,
    state: str = "S",
    role: str = "worker",
    progress: Progress | None = STILL,
    **more: Any,
) -> RankState:
    """One process; `texts` are its sockets."""
    pid = more.pop("pid", 1000 + (number if number is not None else 900) + 100 * ord(node[-1]))
    return RankState(
        pid,
        node,
        role,
        number,
        world,
        state=state,
        threads=threads(place, line) if place else [],
        sockets=sockets(*texts),
        progress=progress,
        **more,
    )
