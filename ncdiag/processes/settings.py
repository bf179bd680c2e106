"""Which variables of a process matter to start-up, and on which node (machine or container) it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ncdiag.host import Host, HostError
from ncdiag.processes.proc import Proc

_MATTERS = re.compile(
    r"^(?:NCCL_|GLOO_|TORCH|PYTORCH_|VLLM_|RAY_|MASTER_|RANK$|WORLD_SIZE$|LOCAL_|GROUP_|CUDA_|NVIDIA_VISIBLE|HIP_|ROCR_|TP_SOCKET"
    r"|UCX_|FI_|OFI_|OMPI_COMM_WORLD_|PMI_|SLURM_(?:PROCID|NTASKS|NODEID|JOB_ID|STEP)|HF_HUB|HF_HOME|TRANSFORMERS_|OMP_NUM|USE_LIBUV"
    r"|XDG_CACHE_HOME$|HOME$|HOSTNAME$|LD_PRELOAD$|LD_LIBRARY_PATH$|(?:HTTPS?|NO|ALL)_PROXY$)",
    re.I,
)


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of NCCL, gloo, torch, vLLM, Ray, the launcher and the network; masked as `environ` was."""
    return {name: environ[name] for name in sorted(environ) if _MATTERS.search(name)}


def node_of(host: Host, proc: Proc) -> str:
    """The name of the node that the process takes itself to be on: of its container or UTS namespace, else of this machine."""
    try:
        if host.link(f"/proc/{proc.pid}/ns/uts") == host.link("/proc/self/ns/uts"):
            return host.node
    except HostError:
        return host.node
    if proc.environ.get("HOSTNAME"):
        return proc.environ["HOSTNAME"]
    try:
        return host.read(f"/proc/{proc.pid}/root/etc/hostname", 4096).strip() or host.node
    except HostError:
        return host.node
