"""Stages of vLLM from Python frames: V0 of 0.6, V1 from 0.9 to 0.33; multiprocessing, multi-node, Ray (old and V2),
external launcher. Names and paths as read in those releases and seen on running ones; the first rule that fits wins.
"""

from __future__ import annotations

from ncdiag.stages.match import Rule
from ncdiag.stages.order import CLUSTER, DISK, ENGINE, HUB, ORDERS, PEERS, QUEUE, STORE, WORKERS
from ncdiag.stages.torch import COMPILING

_QUEUE = "wait_until_ready@vllm/*shm_broadcast.py"
_EXECUTOR = "vllm/*executor*.py"
_RPC = "collective_rpc@vllm/*executor"

FRONT = (
    Rule("wait-engine", ENGINE, ("wait_for_engine_startup@vllm/*engine/utils.py",)),
    Rule("wait-engine", ENGINE, ("wait_for_completion_or_failure@vllm/*engine/",)),
    Rule("wait-engine", ENGINE, ("_wait_for_engine_ready@vllm/*core_client",)),
    Rule("wait-engine", ENGINE, ("_wait_for_server_rpc@vllm/*multiprocessing/client.py",)),
    Rule("ready", ORDERS, ("lifespan@vllm/",)),
    Rule("ready", ORDERS, ("serve_http@vllm/",)),
    Rule("ready", ORDERS, ("start_worker_monitor@vllm/*executor", "run_headless@vllm/"), "watches its workers"),
    Rule("ready", ORDERS, ("join@multiprocessing/process.py", "run_headless@vllm/"), "watches its engines"),
)

MANAGER = (
    Rule("ray-connect", CLUSTER, ("init@ray/_private/worker.py", "initialize_ray_cluster@vllm/"), "ray.init"),
    Rule("ray-placement", CLUSTER, ("_wait_until_pg_ready@vllm/",)),
    Rule("ray-placement", CLUSTER, ("initialize_ray_cluster@vllm/",)),
    Rule("handshake", ENGINE, ("startup_handshake@vllm/*engine/core.py",), "waits for the front end"),
    Rule("wait-workers", WORKERS, ("wait_for_ready@vllm/*multiproc_executor.py",)),
    Rule("message-queues", QUEUE, (_QUEUE, "_init_executor@" + _EXECUTOR), "its workers' message queues"),
    Rule("message-queues", QUEUE, (_QUEUE, "run_headless@vllm/"), "its workers' message queues"),
    Rule("wait-workers", WORKERS, ("get@ray/_private/worker.py", "_init_executor@vllm/*ray*executor"), "ray.get"),
    Rule("wait-workers", WORKERS, ("_init_workers_ray@vllm/",), "Ray actors"),
    Rule("wait-workers", WORKERS, ("wait@ray/_private/worker.py", "_init_executor@vllm/*ray*executor"), "ray.wait"),
    Rule("profile", WORKERS, (_RPC, "determine_available_memory@vllm/*executor")),
    Rule("profile", WORKERS, (_RPC, "determine_num_available_blocks@vllm/*executor")),
    Rule("kv-cache", WORKERS, (_RPC, "get_kv_cache_specs@vllm/*executor")),
    Rule("kv-cache", WORKERS, (_RPC, "initialize_from_config@vllm/*executor")),
    Rule("warm-up", WORKERS, (_RPC, "compile_or_warm_up_model@vllm/*executor")),
    Rule("load-weights", WORKERS, (_RPC, "load_model@vllm/*executor")),
    Rule("serving", WORKERS, ("execute_model@vllm/*executor", "step@vllm/*engine/")),
    Rule("serving", WORKERS, ("execute_model@vllm/*executor", "step_with_batch_queue@vllm/*engine/")),
    Rule("serving", WORKERS, ("step_fn@vllm/*engine/core.py", "_process_engine_step@vllm/*engine/core.py")),
    Rule("serving", WORKERS, ("step@vllm/*engine/core.py",)),
    Rule("ready", ORDERS, ("_process_input_queue@vllm/*engine/core.py",)),
    Rule("ready", ORDERS, ("run_busy_loop@vllm/*engine/core.py",)),
    Rule("ready", ORDERS, ("run_engine_loop@vllm/*multiprocessing/engine.py",)),
    Rule("spawn-workers", None, ("make_worker_process@vllm/*multiproc_executor.py",)),
    Rule("spawn-workers", None, ("_init_executor@vllm/*multiproc_gpu_executor.py", "start@multiprocessing/process.py")),
    Rule("engine-init", WORKERS, (_RPC, "__init__@vllm/*engine/")),
)

WORKER = (
    Rule("graph-capture", None, ("capture_model@vllm/",)),
    Rule("graph-capture", None, ("profile_cudagraph_memory@vllm/",)),
    Rule("compile", None, ("compile@vllm/compilation/",)),
    Rule("compile", None, ("__call__@vllm/compilation/backends.py",)),
    Rule("compile", None, ("compile@vllm/",)),
    *COMPILING,
    Rule("warm-up", None, ("kernel_warmup@vllm/",)),
    Rule("warm-up", None, ("warmup_kernels@vllm/",)),
    Rule("warm-up", None, ("compile_or_warm_up_model@vllm/*worker",)),
    Rule("kv-cache", None, ("initialize_from_config@vllm/*worker",)),
    Rule("kv-cache", None, ("initialize_cache@vllm/*worker",)),
    Rule("profile", None, ("determine_available_memory@vllm/*worker",)),
    Rule("profile", None, ("determine_num_available_blocks@vllm/*worker",)),
    Rule("profile", None, ("profile_run@vllm/",)),
    Rule("serving", None, ("execute_model@vllm/*worker",)),
    Rule("serving", None, ("execute_dummy_batch@vllm/*worker",)),
    Rule("groups", QUEUE, (_QUEUE, "create_from_process_group@vllm/*shm_broadcast.py"), "a group's message queue"),
    Rule("message-queues", QUEUE, (_QUEUE,)),
    Rule(
        "message-queues",
        PEERS,
        ("broadcast_object_list@torch/distributed/", "_init_message_queues@vllm/"),
        "the slower ranks' weights",
    ),
    Rule("message-queues", None, ("_init_message_queues@vllm/",)),
    Rule("ready", ORDERS, ("worker_busy_loop@vllm/*executor",)),
    Rule("ready", ORDERS, ("_run_worker_process@vllm/*multiproc_worker_utils.py", "get@multiprocessing/queues.py")),
    Rule("download", HUB, ("download_weights_from_hf@vllm/",)),
    Rule("download", HUB, ("snapshot_download@huggingface_hub/", "load_model@vllm/")),
    Rule("load-weights", DISK, ("safetensors_weights_iterator@vllm/",), "reads shards"),
    Rule("load-weights", DISK, ("pt_weights_iterator@vllm/",), "reads shards"),
    Rule("load-weights", DISK, ("load_weights@vllm/*model_loader/",), "reads shards"),
    Rule("load-weights", None, ("process_weights_after_loading@vllm/",), "prepares weights"),
    Rule("load-weights", None, ("load_model@vllm/*worker*.py",)),
    Rule("load-weights", None, ("load_model@vllm/*model_runner.py",)),
    Rule("load-weights", None, ("load_model@vllm/*model_loader/",)),
    Rule("rendezvous", STORE, ("create_dist_init_method@vllm/",)),
    Rule("communicators", PEERS, ("*@vllm/*custom_all_reduce.py", "*@torch/distributed/")),
    Rule("communicators", None, ("gpu_p2p_access_check@vllm/",), "tests peer access between the GPUs"),
    Rule("communicators", None, ("*@vllm/*custom_all_reduce.py",)),
    Rule("communicators", None, ("*@vllm/*quick_all_reduce.py",)),
    Rule("communicators", None, ("*@vllm/*symm_mem.py",)),
    Rule("communicators", None, ("*@vllm/*flashinfer_all_reduce.py",)),
    Rule("nccl-init", PEERS, ("ncclCommInitRank@vllm/*pynccl_wrapper.py",), "ncclCommInitRank"),
    Rule(
        "nccl-init",
        PEERS,
        ("*@torch/distributed/distributed_c10d.py", "__init__@vllm/*pynccl.py"),
        "the unique id from rank 0",
    ),
    Rule("nccl-init", PEERS, ("__init__@vllm/*pynccl.py",), "the first all-reduce"),
)

WORKER_SETUP = (
    Rule("groups", None, ("in_the_same_node_as@vllm/*parallel_state.py",), "who shares this node"),
    Rule("groups", None, ("initialize_model_parallel@vllm/*parallel_state.py",)),
    Rule("groups", None, ("init_world_group@vllm/*parallel_state.py",)),
    Rule("groups", None, ("init_worker_distributed_environment@vllm/*worker",)),
    Rule("init-device", None, ("init_device@vllm/*worker",)),
    Rule("init-worker", None, ("init_worker@vllm/*worker",)),
)

START = (
    Rule("import", None, ("_find_and_load@<frozen importlib",)),
    Rule("import", None, ("_find_and_load@importlib",)),
    Rule("import", None, ("_fixup_main_from_path@multiprocessing/spawn.py",)),
    Rule("spawn-workers", WORKERS, ("_init_executor@" + _EXECUTOR,)),
    Rule("engine-init", None, ("__init__@vllm/*engine/core.py",)),
    Rule("engine-init", None, ("__init__@vllm/*engine/llm_engine.py",)),
    Rule("wait-workers", WORKERS, ("get@ray/_private/worker.py",), "ray.get"),
    Rule("wait-workers", WORKERS, ("wait@ray/_private/worker.py",), "ray.wait"),
    Rule("ray-actor", ORDERS, ("main_loop@ray/_private/worker.py",)),
    Rule("config", None, ("create_engine_config@vllm/*arg_utils.py",)),
    Rule("ready", ORDERS, ("run@uvloop/", "*@vllm/entrypoints/"), "serves"),
    Rule("ready", ORDERS, ("run_forever@asyncio/", "*@vllm/entrypoints/"), "serves"),
    Rule("config", None, ("*@vllm/entrypoints/",)),
)
BORN = (Rule("start", None, ("spawn_main@multiprocessing/spawn.py",)),)
"""A child of multiprocessing that is not in any code of its own yet; the frame stays under all that it ever runs."""
