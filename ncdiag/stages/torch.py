"""Stages of torch.distributed, torchrun and NCCL itself, from Python and native frames (py-spy --native).

Python: torch 2.1 to 2.14. Native symbols as seen in stacks of hung ranks, and as named in NCCL 2.18 to 2.32.
"""

from __future__ import annotations

from ncdiag.stages.match import Rule
from ncdiag.stages.order import GPU, PEERS, STORE, WORKERS

_C10D = "torch/distributed/distributed_c10d.py"

SETUP = (
    Rule("rendezvous", STORE, ("~waitForWorkers",), "the store waits for its clients"),
    Rule("rendezvous", STORE, ("_create_c10d_store@torch/distributed/rendezvous.py",)),
    Rule("rendezvous", STORE, ("_store_based_barrier@" + _C10D,)),
    Rule("rendezvous", STORE, ("next_rendezvous@torch/distributed/elastic/",), "torchrun waits for the other nodes"),
    Rule("rendezvous", STORE, ("*@torch/distributed/rendezvous.py", "init_process_group@" + _C10D)),
    Rule("wait-workers", WORKERS, ("_monitor_workers@torch/distributed/elastic/",), "torchrun watches its workers"),
    Rule("wait-workers", WORKERS, ("_invoke_run@torch/distributed/elastic/",), "torchrun watches its workers"),
    Rule("nccl-init", PEERS, ("~socketTryAccept",), "waits for its ring neighbour to connect"),
    Rule("nccl-init", PEERS, ("~socketRingConnect",), "connects to its ring neighbours"),
    Rule("nccl-init", PEERS, ("~bootstrapInit",), "bootstrap"),
    Rule("nccl-init", PEERS, ("~bootstrapAllGather",), "exchanges addresses with the ring"),
    Rule("nccl-init", PEERS, ("~initTransportsRank",), "connects its transports"),
    Rule("nccl-init", PEERS, ("~ncclCommInitRankFunc",)),
    Rule("nccl-init", PEERS, ("~ncclCommInitRankDev",)),
    Rule("nccl-init", PEERS, ("~ncclCommInitRankConfig",)),
    Rule("nccl-init", PEERS, ("~ncclCommInitRank",)),
    Rule("nccl-init", PEERS, ("~ncclCommSplit",)),
    Rule("nccl-init", STORE, ("~broadcastUniqueNCCLID",), "the unique id from rank 0"),
)
"""Wins over the vLLM stage around it when the group or the communicator is being made."""

GROUPS = (
    Rule("mesh", PEERS, ("_new_process_group_helper@" + _C10D, "init_process_group@" + _C10D)),
    Rule("mesh", PEERS, ("~connectFullMesh", "init_process_group@" + _C10D)),
    Rule("groups", PEERS, ("_new_process_group_helper@" + _C10D,)),
    Rule("groups", PEERS, ("~connectFullMesh",)),
    Rule("groups", PEERS, ("new_group@" + _C10D,)),
    Rule("groups", PEERS, ("*@torch/distributed/device_mesh.py",)),
    Rule("mesh", None, ("init_process_group@" + _C10D,)),
)

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_object",
    "all_gather_into_tensor",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "gather",
    "scatter",
    "barrier",
    "monitored_barrier",
    "broadcast_object_list",
    "gather_object",
    "scatter_object_list",
    "send",
    "recv",
    "send_object_list",
    "recv_object_list",
    "batch_isend_irecv",
    "all_reduce_coalesced",
)
"""Functions of torch.distributed that all ranks of the group have to call."""

ONE_SIDED = ("gloo receives", "gloo sends")
"""What only native frames tell of a request that is waited for: its Python stack is the same on both sides."""
A_MESSAGE = "a send or receive"
"""Either of them, where they were not read."""

IN_COLLECTIVE = tuple(Rule("collective", PEERS, (name + "@" + _C10D,), name) for name in COLLECTIVES) + (
    Rule("collective", STORE, ("~doWait",), "a key of the store"),
    Rule("collective", STORE, ("~receiveValueWithTimeout",), "an answer of the store"),
    Rule("collective", STORE, ("~doGet",), "a key of the store"),
    Rule("collective", PEERS, ("~waitRecv",), ONE_SIDED[0]),
    Rule("collective", PEERS, ("~waitSend",), ONE_SIDED[1]),
    Rule("collective", PEERS, ("~synchronizeInternal",), "waits for a collective to end"),
    Rule("collective", PEERS, ("~finalize_backward",), "DDP's sum of the gradients"),
    Rule("collective", PEERS, ("_verify_param_shape_across_processes@torch/distributed/utils.py",), "DDP's start"),
    Rule("collective", PEERS, ("_sync_module_states@torch/distributed/utils.py",), "DDP's start"),
    Rule("collective", PEERS, ("_distributed_broadcast_coalesced@torch/nn/parallel/distributed.py",), "DDP's buffers"),
    Rule("collective", PEERS, ("wait_tensor@torch/distributed/_functional_collectives.py",), "a collective's result"),
    Rule("collective", PEERS, ("~Work::wait",), "waits for a collective to end"),
    Rule("collective", PEERS, ("~WorkNCCL::wait",), "waits for a collective to end"),
    Rule("collective", PEERS, ("*@vllm/*communicator*.py",), "a collective of vLLM"),
    Rule("collective", PEERS, ("*@vllm/*pynccl.py",), "a collective of vLLM"),
)

ON_GPU = tuple(
    Rule("collective", GPU, ("~" + name,), name)
    for name in (
        "cudaStreamSynchronize",
        "cuStreamSynchronize",
        "cudaEventSynchronize",
        "cuEventSynchronize",
        "cudaDeviceSynchronize",
        "cuCtxSynchronize",
        "hipStreamSynchronize",
        "hipDeviceSynchronize",
    )
) + (Rule("collective", GPU, ("synchronize@torch/cuda/",), "synchronize"),)

PACKING = tuple(Rule("program", None, (f"{name}@{_C10D}",)) for name in ("_object_to_tensor", "_tensor_to_object"))
"""Objects are pickled before, and unpickled after, what moves them."""

COMPILING = tuple(
    Rule("compile", None, ("*@" + path,))
    for path in (
        "torch/_inductor/compile_fx.py",
        "torch/_inductor/graph.py",
        "torch/_inductor/scheduler.py",
        "torch/_inductor/codecache.py",
        "torch/_inductor/cpp_builder.py",
        "torch/_inductor/async_compile.py",
        "torch/_inductor/codegen/",
        "torch/_inductor/runtime/autotune",
        "torch/_dynamo/convert_frame.py",
        "torch/_dynamo/symbolic_convert.py",
        "triton/compiler/",
        "triton/runtime/autotuner.py",
        "torch/utils/cpp_extension.py",
    )
)
"""torch.compile at work, and not what it compiled at run time."""

ENDING = (
    Rule("shutdown", None, ("destroy_process_group@" + _C10D,)),
    Rule("shutdown", None, ("_ensure_worker_termination@vllm/",)),
    Rule("shutdown", None, ("shutdown@vllm/*executor",)),
    Rule("shutdown", None, ("~ncclCommAbort",)),
    Rule("shutdown", None, ("~ncclCommDestroy",)),
)
