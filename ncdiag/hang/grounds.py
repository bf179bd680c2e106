"""Late or stuck: what shows that a rank which does not move stands for good, and is not only slow.

Within a short look a rank that sleeps in every step, or gets a line of its input now and then, shows what one that hangs shows. So somebody is called
stuck by more than that: by how long it has not run, by what its wait can end, by how long the others have waited for it.
"""

from __future__ import annotations

from typing import List, Sequence

from ncdiag.hang.idle import waits_for_a_result
from ncdiag.hang.scene import View
from ncdiag.model import Frame
from ncdiag.nodeset import counted
from ncdiag.stages import steps
from ncdiag.stages.idle import RULES as IDLE
from ncdiag.stages.match import first
from ncdiag.stages.order import LOCK, PEERS, PIPE, QUEUE, SLEEP, STORE, TYPED
from ncdiag.stages.threads import frames_of, is_user, main_thread

LONG_S = 30.0
"""Seconds without a move of a rank that others wait for, after which late is the less likely answer."""


def stands(view: View, waiting: Sequence[View]) -> str:
    """Why it stands for good, in words; empty where nothing shows that. `waiting`: those that wait for it."""
    state = view.state
    if view.waiting == SLEEP and view.call.get("left_s", 0.0) >= LONG_S:
        return f"this sleep lasts {duration(view.call['left_s'])} more"
    if _still(view) >= LONG_S:
        return f"it has not run for {duration(_still(view))}"
    longest = waited_s(waiting)
    if longest >= LONG_S:
        return f"the others have waited for {duration(longest)}"
    if view.waiting == LOCK and view.call.get("endless") and _only_itself(view):
        return "it waits without a time limit, and no other thread of it runs that could end that"
    if view.waiting == TYPED:
        return f"nothing but a key typed at {view.call['source']['file']} can end that"
    if view.waiting == PIPE and _not_read(view):
        return _not_read(view)
    if view.waiting == PIPE and view.call.get("source"):
        return _no_writer(view, waiting)
    if state.still_s is None and _silent(view):
        return f"its log, which counts steps, has been silent for {duration(state.silent_s or 0.0)}"
    return ""


def waited_s(waiting: Sequence[View]) -> float:
    """Seconds that the one of them has waited that has waited longest, as far as that was seen."""
    return max((_still(other) for other in waiting if other.waiting in (PEERS, STORE, QUEUE)), default=0.0)


def _still(view: View) -> float:
    """Seconds for which it has not run: by the scheduler's clock, else as far as the look itself saw."""
    return max(view.state.still_s or 0.0, view.state.asleep_s or 0.0)


def perhaps(view: View) -> str:
    """What is seen of one that is late or stuck, in words: what it may still come to; empty where there is nothing."""
    state, words = view.state, []
    source = view.call.get("source") or {}
    others = [pid for pid in source.get("writers", ()) if pid != state.pid]
    readers = [pid for pid, _ in (view.call.get("sink") or {}).get("readers", ()) if pid != state.pid]
    if readers:
        words.append(f"pid {', '.join(map(str, readers[:4]))} should read what it writes")
    if "wait_for_partner" in state.wchan:
        words.append("nobody has opened the other end of its FIFO")
    if others:
        words.append(f"pid {', '.join(map(str, others[:4]))} can write what it reads")
    if state.progress is not None and state.progress.woken:
        words.append(
            f"it woke {counted(state.progress.woken, 'time')} meanwhile, and they did not: it polls, or works in small pieces"
        )
    elif view.waiting == SLEEP and view.call.get("left_s") is not None:
        words.append(f"this sleep ends in {duration(view.call['left_s'])}")
    if view.waiting == LOCK:
        words += [f"a thread of it is at {place}" for place in _others_at_work(view)[:1]]
    return "; ".join(words)


def duration(seconds: float) -> str:
    """`2.4 s`, `90 s`, `12 min`, `3 h`, `11 days`"""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def _not_read(view: View) -> str:
    """Why what it writes is not taken; empty where that is not known."""
    sink = view.call.get("sink") or {}
    others = [(pid, state) for pid, state in sink.get("readers", ()) if pid != view.state.pid]
    if "readers" not in sink or not sink.get("all"):
        return ""
    if not others:
        return "nobody else reads the pipe that it writes into"
    if all(state in ("T", "t") for _, state in others):
        return f"process {others[0][0]}, which should read what it writes, is stopped"
    return ""


def unsure(view: View) -> bool:
    """Whether only a longer look, or a log, can tell whether it is late or stuck."""
    return view.verdict == "stuck" and not stands(view, ())


def _silent(view: View) -> bool:
    return (view.state.silent_s or 0.0) >= LONG_S and steps.counted_on(view.state.log_tail) is not None


def _no_writer(view: View, waiting: Sequence[View]) -> str:
    source = view.call["source"]
    if "writers" not in source or not source.get("all"):
        return ""
    others = [pid for pid in source["writers"] if pid != view.state.pid]
    if not others:
        return "nobody else can write into the pipe that it reads"
    if all(any(other.state.pid == pid and other.home == view.home for other in waiting) for pid in others):
        return "who could write into the pipe that it reads waits for it in turn"
    return ""


def _only_itself(view: View) -> bool:
    return not (waits_for_a_result(view) or view.state.children or _others_at_work(view))


def _others_at_work(view: View) -> List[str]:
    """Where threads beside the main one are that could end its wait: idle workers, and who waits for a lock without a limit itself, are none."""
    main = main_thread(view.state.threads)
    others = [
        thread for thread in view.state.threads if thread is not main and not (thread.get("call") or {}).get("endless")
    ]
    stacks = [frames_of(thread) for thread in others]
    return [_place(stack) for stack in stacks if stack and not _idle(stack)]


_MONITORS = ("tqdm/_monitor.py", "torch/_inductor/", "multiprocessing/resource_sharer.py", "multiprocessing/pool.py")


def _idle(stack: Sequence[Frame]) -> bool:
    """A thread that only waits for something to do, or watches."""
    inner = [frame for frame in stack if not frame.native]
    if not inner or first(IDLE, inner) is not None:
        return True
    if inner[0].file.endswith("concurrent/futures/thread.py") and inner[0].name == "_worker":
        return True
    return any(piece in frame.file for frame in inner for piece in _MONITORS)


def _place(stack: Sequence[Frame]) -> str:
    frame = next((frame for frame in stack if is_user(frame)), None) or stack[0]
    return f"{frame.name} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})"
