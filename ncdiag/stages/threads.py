"""From the threads of one process to its stage: the main thread speaks first, then whichever thread says more."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from ncdiag.model import Frame
from ncdiag.stages import idle, torch, vllm, waits
from ncdiag.stages.match import Rule, first
from ncdiag.stages.order import DNS, ENGINE, LOCK, ORDERS, WORKERS


@dataclass(frozen=True)
class StageMatch:
    """Where a process is, and what it waits for there."""

    stage: str
    """A name of `STAGES`; `unknown` when there is no stack, or none that says anything."""
    waiting: Optional[str] = None
    """A key of `WAITING`; None: it works, or nothing shows a wait."""
    why: Optional[Frame] = None
    """The frame that it rests on."""
    detail: str = ""
    """More exactly what it does or waits for, in words; may be empty."""
    thread: Optional[int] = None
    """The thread that it is about, where the main thread only waits for that one."""


_MANAGERS = ("api-server", "engine-core", "headless", "launcher")
_LIBRARY = re.compile(
    r"^<|/(?:site|dist)-packages/|/lib/python\d|^(?:torch|vllm|ray|zmq|multiprocessing|concurrent|asyncio|importlib)/"
    r"|(?:^|/)vllm/(?:v1|engine|executor|worker|distributed|model_executor|entrypoints|compilation)/"
)
_GIVEN = ("<string>", "<stdin>")
"""A program that stands in the command line, or was piped in."""
_BESIDE = ("collective", "import", "start")
"""Stages that a thread beside a program may be in without the program being there: the flight recorder's own thread imports half of
torch when it writes a dump."""
_STDLIB = ("threading.py", "selectors.py", "subprocess.py", "socket.py", "queue.py", "runpy.py", "ssl.py", "signal.py")


def frames_of(thread: Mapping[str, Any]) -> List[Frame]:
    """The frames of one thread, innermost first; plain dictionaries (a read bundle) are accepted too."""
    return [frame if isinstance(frame, Frame) else Frame(**frame) for frame in thread.get("frames") or ()]


def main_thread(threads: Sequence[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """The thread that is marked `main`, is called MainThread, or comes first; None without threads."""
    for thread in threads:
        if thread.get("main") or thread.get("name") == "MainThread":
            return thread
    return threads[0] if threads else None


def stage_of_threads(threads: Sequence[Mapping[str, Any]], role: str = "unknown") -> StageMatch:
    """The stage of a process. `threads` as in `RankState.threads`, `role` as in `RankState.role`."""
    main = main_thread(threads)
    if main is None:
        return StageMatch("unknown")
    match = _stage_of_stack(frames_of(main), role)
    if match.stage not in ("unknown", "program", "ray-actor"):
        return match
    others = [_stage_of_stack(frames_of(thread), role) for thread in threads if thread is not main]
    known = [
        other
        for other in others
        if other.stage not in ("unknown", "program", "ready", "ray-actor")
        and not (other.stage in _BESIDE and match.stage == "program")
    ]
    if known or match.stage != "program":
        return known[0] if known else _at_the_end(main, threads) or match
    return delegate(frames_of(main), [thread for thread in threads if thread is not main], role) or match


_FOR_A_THREAD = tuple(
    Rule("program", None, (frame,))
    for frame in (
        "join@threading.py",
        "_wait_for_tstate_lock@threading.py",
        "result@concurrent/futures/_base.py",
        "shutdown@concurrent/futures/thread.py",
    )
)
_FOR_ANYTHING = tuple(
    Rule("program", None, (frame,))
    for frame in ("wait@threading.py", "get@queue.py", "_run_once@asyncio/base_events.py")
)
_IN_A_THREAD = (Rule("program", None, ("_bootstrap@threading.py",)),)
"""Threads of C++ that only call into Python have no such frame."""


def delegate(main: Sequence[Frame], others: Sequence[Mapping[str, Any]], role: str) -> Optional[StageMatch]:
    """Where the thread is that a main thread waits for: one in a collective, or, where it waits for a thread to end, the only one in code of the
    program. None where it waits for none, or there is no telling which."""
    ends = first(_FOR_A_THREAD, main) is not None
    if not ends and first(_FOR_ANYTHING, main) is None:
        return None
    found = []
    for thread in others:
        stack = frames_of(thread)
        if first(_IN_A_THREAD, stack) is not None:
            found.append(replace(_stage_of_stack(stack, role), thread=thread.get("tid")))
    meets = [match for match in found if match.stage == "collective"]
    works = [match for match in found if match.stage == "program"]
    if meets:
        return meets[0]
    return works[0] if ends and len(works) == 1 else None


_AT_EXIT = (Rule("shutdown", LOCK, ("_shutdown@threading.py",)),)
"""The interpreter at its end: it waits for every thread that is no daemon."""


def _at_the_end(main: Mapping[str, Any], threads: Sequence[Mapping[str, Any]]) -> Optional[StageMatch]:
    """A program that has come to its end, all but a thread of its own."""
    if first(_AT_EXIT, frames_of(main)) is None:
        return None
    stacks = [frames_of(thread) for thread in threads if thread is not main]
    inside = [stack for stack in stacks if first(_IN_A_THREAD, stack) is not None]
    own = next((frame for stack in inside for frame in stack if is_user(frame)), None)
    where = f", at {own.name} ({own.file.rsplit('/', 1)[-1]}:{own.line})" if own is not None else ""
    detail = f"its main program is at its end, and a thread of it is not{where}"
    return StageMatch("shutdown", LOCK, own or frames_of(main)[0], detail)


def _stage_of_stack(stack: Sequence[Frame], role: str) -> StageMatch:
    if not stack:
        return StageMatch("unknown")
    hit = first(_rules(role), stack)
    if hit is not None and hit[0].stage == "collective" and _calls_back(stack, hit[1]):
        return _own_code(stack)
    if hit is None or (hit[0].stage in ("ray-actor", "start") and any(map(is_user, since_fork(stack)))):
        return _own_code(
            stack
        )  # a task of the program that Ray's worker runs, or the function that a process was made for
    rule, frame = hit
    names = waits.name_lookup(stack)
    if names is not None and rule.waiting not in (WORKERS, ENGINE, ORDERS):
        return StageMatch(rule.stage, DNS, names, "looks a name up")
    if rule.waiting is not None:
        return StageMatch(rule.stage, rule.waiting, frame, rule.detail)
    return _inner(stack, rule, frame)


def _calls_back(stack: Sequence[Frame], collective: Frame) -> bool:
    """Whether a collective runs something by itself before it meets the others: it packs objects, or calls the program."""
    inside = stack[: list(stack).index(collective)]
    return first(torch.PACKING, inside) is not None or any(map(is_user, inside))


def _rules(role: str) -> Tuple[Rule, ...]:
    manager = vllm.FRONT + vllm.MANAGER
    worker = torch.SETUP + vllm.WORKER + torch.GROUPS + vllm.WORKER_SETUP
    head = manager + worker if role in _MANAGERS else worker + manager
    return (
        torch.ENDING + head + vllm.START + torch.COMPILING + torch.IN_COLLECTIVE + torch.ON_GPU + idle.RULES + vllm.BORN
    )


def _inner(stack: Sequence[Frame], rule: Rule, frame: Frame) -> StageMatch:
    """A stage that works: is it, inside, in a collective, on the GPU, or in a wait of its own?"""
    inner = first(torch.IN_COLLECTIVE + torch.ON_GPU, stack)
    if inner is not None:
        return StageMatch(rule.stage, inner[0].waiting, inner[1], inner[0].detail or rule.detail)
    wait = waits.wait_of_stack(stack)
    if wait is not None:
        return StageMatch(rule.stage, wait[0], wait[1], wait[2] or rule.detail)
    return StageMatch(rule.stage, None, frame, rule.detail)


def _own_code(stack: Sequence[Frame]) -> StageMatch:
    wait = waits.wait_of_stack(stack)
    own = next((frame for frame in since_fork(stack) if is_user(frame)), None) or _given(stack)
    stage = "program" if own is not None else "unknown"
    if wait is not None:
        return StageMatch(stage, wait[0], own or wait[1], "" if own is not None else wait[2])
    return StageMatch(stage, None, own or stack[0])


def _given(stack: Sequence[Frame]) -> Optional[Frame]:
    """Of a program that stands in the command line, its innermost frame; libraries generate functions of such names, too, but not where a program begins."""
    outer = next((frame for frame in reversed(stack) if not frame.native), None)
    if outer is None or outer.name != "<module>" or outer.file not in _GIVEN:
        return None
    return next(frame for frame in stack if frame.file == outer.file)


def since_fork(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Without the frames that a forked child of multiprocessing inherited: those are its parent's."""
    for place, frame in enumerate(stack):
        if frame.name.endswith("_bootstrap") and frame.file.endswith("multiprocessing/process.py"):
            return stack[: place + 1]
    return stack


_NATIVE = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")
"""Of frames that a dump of text does not call native."""


def is_user(frame: Frame) -> bool:
    """Whether it is code of the program itself: no library, no interpreter, no native frame."""
    if frame.native or ".so" in frame.file or not frame.file or frame.file.endswith(_NATIVE):
        return False
    return not _LIBRARY.search(frame.file) and not frame.file.endswith(_STDLIB)
