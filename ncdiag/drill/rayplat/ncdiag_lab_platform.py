"""A vLLM platform for the lab: vLLM's CPU platform, which Ray may place on several nodes.

vLLM's own says that Ray does not go with CPUs. Here every Ray node declares GPUs that it has not (`ray start --num-gpus 1`), vLLM asks
for them as it does on a GPU cluster, and the workers compute on CPUs with gloo. And vLLM takes ranks whose store has one port for ranks
of one machine, which is true of any Ray job: the communicator here asks for the host's name as well.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import socket
from typing import Any

PLATFORM = "RayOnCpu"
COMMUNICATOR = "NodeAware"


def register() -> str:
    """vLLM's entry point: the path of the platform class."""
    return f"{__name__}.{PLATFORM}"


def _platform() -> type:
    from vllm.platforms.cpu import CpuPlatform

    def communicator(cls: type) -> str:
        return f"{__name__}.{COMMUNICATOR}"

    return type(
        PLATFORM,
        (CpuPlatform,),
        {"ray_device_key": "GPU", "get_device_communicator_cls": classmethod(communicator), "__module__": __name__},
    )


def _communicator() -> type:
    import torch.distributed as dist
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    def share_memory(self: Any) -> bool:
        mine = socket.gethostname(), os.stat("/dev/shm").st_dev
        places: list[Any] = [None] * self.world_size
        dist.all_gather_object(places, mine, group=self.device_group)
        return all(place == mine for place in places) and CpuCommunicator._all_group_ranks_share_shm_group_name(self)

    return type(
        COMMUNICATOR,
        (CpuCommunicator,),
        {"_all_group_ranks_share_shm_group_name": share_memory, "__module__": __name__},
    )


def __getattr__(name: str) -> type:
    """Made when they are asked for: vLLM must not be imported before its plug-ins are known."""
    made = {PLATFORM: _platform, COMMUNICATOR: _communicator}.get(name)
    if made is None:
        raise AttributeError(name)
    globals()[name] = found = made()
    return found
