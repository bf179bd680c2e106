"""Asks something inside another network namespace, such as a container's. Travels to nodes."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Callable, TypeVar

_CLONE_NEWNET = 0x40000000
T = TypeVar("T")


def is_ours(netns: str) -> bool:
    """Whether the file of a namespace (`/proc/PID/ns/net`) is that of this process, or cannot be read."""
    try:
        return os.readlink(netns) == os.readlink("/proc/self/ns/net")
    except OSError:
        return True


def inside(netns: str, question: Callable[[], T], limit_s: float) -> T:
    """`question()` in a thread of its own that has entered the namespace; the rest of the program stays where it is.

    Raises what the question raises; OSError where it cannot be entered, TimeoutError without an answer in time.
    """
    answer: list[T] = []
    failure: list[Exception] = []

    def work() -> None:
        try:
            _enter(netns)
            answer.append(question())
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if failure:
        raise failure[0]
    if not answer:
        raise TimeoutError("no answer within %g s" % limit_s)
    return answer[0]


def _enter(netns: str) -> None:
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(
                number,
                "%s cannot be entered (%s); run ncdiag as root, or inside the container" % (netns, os.strerror(number)),
            )
    finally:
        os.close(descriptor)
