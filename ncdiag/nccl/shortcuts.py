"""The lines that every rank says once, so that remembering them is of no use, and those that come in great number and say nothing kept: by their first
five bytes. `READERS[beginning](thread, at, message)` is False where the message is not quite as usual: then `messages.interpret` reads it.
"""

from __future__ import annotations

from typing import Callable, Dict

from . import comm_lines, messages
from . import log_actions as do
from . import log_state as state
from .log_state import Thread
from .places import At


def noise(thread: Thread, at: At, message: bytes) -> bool:
    """Subsystems GRAPH, TUNING, ALLOC …"""
    return True


def channel(thread: Thread, at: At, message: bytes) -> bool:
    """A channel line, or something that begins like one."""
    return False


def _call(thread: Thread, at: At, message: bytes) -> bool:
    end = message[-9:]
    if end == b" COMPLETE":  # repeats the text of Init START
        rank = thread.rank
        if rank is None or rank.text != message[:-9] or rank.complete:
            return False
        rank.complete, rank.text = True, b""
        rank.mark(state.COMPLETE, at)
        thread.begin(rank)
        return True
    if end == b"nit START":
        said = None if b"NCCL " in message else comm_lines.read(message)
        if said is None:
            return False
        rank = do.comm(thread, at, *said)
        if rank is not None:
            rank.text = message[:-6]
        return True
    return False


def _comm(thread: Thread, at: At, message: bytes) -> bool:
    who, found, numbers = message.partition(b" nRanks ")
    if not found:  # older releases do not name the call
        return _call(thread, at, message)
    rank, size = thread.rank, messages.size(numbers)
    if rank is None or size is None or who + b" nranks " not in rank.text:
        return False
    do.counted(thread, at, rank, size)
    return True


def _trees(thread: Thread, at: At, message: bytes) -> bool:
    if b"N" in message or b"p" in message:  # "NCCL", " [repeated "
        return False
    do.tree(thread, at, message)
    return True


def _bootstrap(thread: Thread, at: At, message: bytes) -> bool:
    if not message.startswith(b"Bootstrap timings total ") or not _whole(message):
        return False
    do.bootstrapped(thread, at, message)
    return True


def _init(thread: Thread, at: At, message: bytes) -> bool:
    if not message.startswith(b"Init timings - ") or not _whole(message):
        return False
    do.timed(thread, at, message)
    return True


def _whole(message: bytes) -> bool:
    return message.endswith(b")") and b"N" not in message and b"[" not in message


READERS: Dict[bytes, Callable[[Thread, At, bytes], bool]] = {
    **dict.fromkeys((b"Ring ", b"Tree ", b"CPU/0", b"CPU/1", b"GPU/0", b"GPU/1", b"GPU/2"), noise),
    **dict.fromkeys((b"+ PCI", b"+ NVL", b"+ NET", b"+ SYS", b"+ GPU", b"+ C2C", b"     "), noise),
    b"Chann": channel,
    b"ncclC": _call,
    b"comm ": _comm,
    b"Trees": _trees,
    b"Boots": _bootstrap,
    b"Init ": _init,
}
