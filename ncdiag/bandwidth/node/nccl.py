"""NCCL called past torch, for what torch does not offer."""

from __future__ import annotations

from typing import Any, Callable

from ncdiag.bandwidth.node.group import Group


def out_of_place(group: Group) -> Callable[[Any, Any], None]:
    """NCCL's all-reduce from one buffer to another, which torch does not offer: called in the NCCL library that torch has loaded."""
    if not hasattr(group, "nccl"):
        group.nccl = Nccl(group)  # type: ignore[attr-defined]
    return group.nccl.all_reduce  # type: ignore[attr-defined]


class Nccl:
    """A communicator of our own beside torch's."""

    def __init__(self, group: Group) -> None:
        import ctypes

        class UniqueId(ctypes.Structure):
            _fields_ = [("internal", ctypes.c_char * 128)]

        self.ctypes, self.group = ctypes, group
        self.library = ctypes.CDLL("libnccl.so.2")
        unique = UniqueId()
        if group.rank == 0:
            self._do("ncclGetUniqueId", ctypes.byref(unique))
        shared = group.torch.frombuffer(
            bytearray(ctypes.string_at(ctypes.addressof(unique), 128)), dtype=group.torch.uint8
        ).to(group.device)
        group.dist.broadcast(shared, 0)
        ctypes.memmove(ctypes.addressof(unique), bytes(shared.tolist()), 128)
        self.comm = ctypes.c_void_p()
        self._do("ncclCommInitRank", ctypes.byref(self.comm), group.world, unique, group.rank)

    def _do(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError("%s returned %d" % (name, status))

    def all_reduce(self, source: Any, target: Any) -> None:
        torch, pointer = self.group.torch, self.ctypes.c_void_p
        kind = {torch.float32: 7, torch.float16: 6, torch.bfloat16: 9}[self.group.dtype]
        stream = pointer(torch.cuda.current_stream().cuda_stream)
        count = self.ctypes.c_size_t(source.numel())
        self._do(
            "ncclAllReduce", pointer(source.data_ptr()), pointer(target.data_ptr()), count, kind, 0, self.comm, stream
        )
