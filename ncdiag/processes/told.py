"""Whether the Python frames of a process and its system call tell what it waits for, so that it need not be paused for its native frames."""

from __future__ import annotations

from ncdiag import stages
from ncdiag.host import Host, HostError
from ncdiag.processes.look import Look
from ncdiag.stages.order import ENGINE, ORDERS, PEERS, QUEUE, WORKERS

_BY_FRAMES = (WORKERS, ENGINE, ORDERS, QUEUE)
_BY_CALL = ("wait4", "waitid", "flock", "pause", "rt_sigsuspend")
_GPUS = ("/dev/nvidia", "/dev/kfd")


def told(host: Host, look: Look) -> bool:
    """In its own code the call has to say it all: a sleep, a pipe, a child, a lock of a file; a futex or a socket may be anything that a library does,
    unless the innermost Python frame is a lock of Python's.
    In a collective a process without a GPU waits for its peers; with one it may be amid the set-up of NCCL."""
    if look.paused:
        return False
    match = stages.stage_of_threads(look.first.threads, look.state.role)
    if match.thread is not None:
        return False
    if match.waiting in _BY_FRAMES:
        return True
    if match.stage == "collective":
        return match.waiting == PEERS and not _has_gpu(host, look)
    return match.stage == "program" and _says_it(host, look) and not _has_gpu(host, look)


def _says_it(host: Host, look: Look) -> bool:
    call, main = look.state.call, stages.main_thread(look.first.threads) or {}
    inner = next(iter(stages.frames_of(main)), None)
    if call.get("sleeps") or call.get("name") in _BY_CALL:
        return True
    if call.get("name") == "futex" and inner is not None and inner.file.endswith("threading.py"):
        return True
    if call.get("name") not in ("read", "write") or not call.get("descriptors"):
        return False
    try:
        return not host.link(f"/proc/{look.state.pid}/fd/{call['descriptors'][0]}").startswith("socket:")
    except HostError:
        return False


def _has_gpu(host: Host, look: Look) -> bool:
    """Also where that cannot be seen."""
    folder = f"/proc/{look.state.pid}/fd"
    try:
        return any(host.link(f"{folder}/{name}").startswith(_GPUS) for name in host.list(folder))
    except HostError:
        return True
