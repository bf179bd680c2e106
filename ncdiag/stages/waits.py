"""What a thread waits for, from its innermost frames; used where the stage alone does not say it."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

from ncdiag.model import Frame
from ncdiag.stages.match import Rule, first
from ncdiag.stages.order import CHILD, DISK, DNS, HUB, LOCK, PIPE, QUEUE, SLEEP, SOCKET

_ANY = "unknown"

_NATIVE = tuple(
    Rule(_ANY, kind, ("~" + name,), name)
    for kind, names in (
        (
            DNS,
            (
                "getaddrinfo",
                "getnameinfo",
                "gethostbyname",
                "gethostbyaddr",
                "gethostbyname_r",
                "send_dg",
                "__res_context_send",
                "__res_context_query",
                "socket_getaddrinfo",
            ),
        ),
        (
            LOCK,
            (
                "lock_PyThread_acquire_lock",
                "PyThread_acquire_lock_timed",
                "pthread_mutex_lock",
                "__lll_lock_wait",
                "sem_wait",
                "__new_sem_wait_slow64",
                "flock",
                "rlock_acquire",
            ),
        ),
        (SLEEP, ("time_sleep", "nanosleep", "clock_nanosleep", "__clock_nanosleep", "pysleep")),
        (CHILD, ("waitpid", "wait4", "__wait4", "__waitpid", "os_waitpid")),
        (DISK, ("fsync", "fdatasync", "pread64", "__pread64", "_Py_open", "_Py_open_noraise", "open64", "__open64")),
    )
    for name in names
)

_PYTHON = (
    Rule(_ANY, DNS, ("getaddrinfo@socket.py",)),
    Rule(_ANY, DNS, ("getfqdn@socket.py",)),
    Rule(_ANY, CHILD, ("communicate@subprocess.py",)),
    Rule(_ANY, CHILD, ("wait@subprocess.py",)),
    Rule(_ANY, CHILD, ("_try_wait@subprocess.py",)),
    Rule(_ANY, LOCK, ("acquire@filelock/",), "a lock file"),
    Rule(_ANY, LOCK, ("wait@torch/utils/file_baton.py",), "a lock file of a build"),
    Rule(_ANY, LOCK, ("wait@threading.py",)),
    Rule(_ANY, LOCK, ("acquire@threading.py",)),
    Rule(_ANY, LOCK, ("__enter__@multiprocessing/synchronize.py",)),
    Rule(_ANY, QUEUE, ("poll@zmq/",)),
    Rule(_ANY, QUEUE, ("recv@zmq/",)),
    Rule(_ANY, HUB, ("*@huggingface_hub/", "*@urllib3/")),
    Rule(_ANY, PIPE, ("_recv@multiprocessing/connection.py",)),
    Rule(_ANY, SOCKET, ("readinto@socket.py",)),
    Rule(_ANY, SOCKET, ("create_connection@socket.py",)),
)

_FAR_OUT = (Rule(_ANY, CHILD, ("_try_get_data@torch/utils/data/dataloader.py",), "the next batch of its data loaders"),)
"""Waits that say more than what they are made of."""
_AROUND = (Rule(_ANY, HUB, ("*@huggingface_hub/",)),)
"""What a wait is for that its innermost frames do not tell: which library speaks to the network differs by version."""
_DEPTH = 6
"""Frames from the innermost that can be the wait itself; farther out is who called it."""

WCHAN = (
    ("fuse_", DISK),
    ("request_wait_answer", DISK),
    ("nfs", DISK),
    ("rpc_wait", DISK),
    ("folio_wait", DISK),
    ("wait_on_page", DISK),
    ("io_schedule", DISK),
    ("ceph", DISK),
    ("lustre", DISK),
    ("cl_sync_io", DISK),
    ("wait_for_partner", PIPE),
    ("fifo_open", PIPE),
    ("pipe_read", PIPE),
    ("pipe_write", PIPE),
    ("pipe_wait", PIPE),
    ("unix_stream", PIPE),
    ("locks_lock_inode_wait", LOCK),
    ("flock_lock", LOCK),
    ("posix_lock", LOCK),
    ("fcntl_setlk", LOCK),
    ("futex", LOCK),
    ("do_wait", CHILD),
    ("kernel_clone", CHILD),
    ("wait_for_vfork_done", CHILD),
    ("hrtimer_nanosleep", SLEEP),
    ("inet_csk_accept", SOCKET),
    ("sk_wait_data", SOCKET),
    ("wait_woken", SOCKET),
    ("inet_wait_for_connect", SOCKET),
)
"""A piece of the kernel's wait channel (`/proc/PID/wchan`, or the top of `/proc/PID/stack`) -> what is waited for."""

SYSCALLS = {
    "futex": LOCK,
    "flock": LOCK,
    "wait4": CHILD,
    "waitid": CHILD,
    "clock_nanosleep": SLEEP,
    "nanosleep": SLEEP,
    "connect": SOCKET,
    "accept": SOCKET,
    "accept4": SOCKET,
    "recvfrom": SOCKET,
    "recvmsg": SOCKET,
    "open": DISK,
    "openat": DISK,
    "pread64": DISK,
    "fsync": DISK,
    "newfstatat": DISK,
    "statx": DISK,
}
"""System call that the thread is in -> what is waited for."""


def name_lookup(stack: Sequence[Frame]) -> Optional[Frame]:
    """The frame of a name look-up among the innermost, whoever asked for it: the store resolves its clients' names too."""
    hit = first([rule for rule in (*_NATIVE, *_PYTHON) if rule.waiting == DNS], list(stack[: 2 * _DEPTH]))
    return hit[1] if hit else None


def wait_of_stack(stack: Sequence[Frame]) -> Optional[Tuple[str, Frame, str]]:
    """`(kind, frame, detail)` of the innermost frames, None where they wait for nothing known."""
    inner = list(stack[:_DEPTH])
    hit = (
        first(_FAR_OUT, stack)
        or first(_NATIVE, inner)
        or first(_PYTHON, [frame for frame in inner if not frame.native][:4])
        or first(_AROUND, stack)
    )
    return (str(hit[0].waiting), hit[1], hit[0].detail) if hit else None


def wait_of_kernel(wchan: str, syscall: str, kernel_stack: Sequence[str] = ()) -> Optional[str]:
    """What the kernel says is waited for: the wait channel, its stack, then the system call. None: nothing known."""
    for place in (wchan, *kernel_stack[:6]):
        for piece, kind in WCHAN:
            if piece in place:
                return kind
    name = syscall.split("(")[0].split()[0] if syscall.strip() else ""
    return SYSCALLS.get(name)
