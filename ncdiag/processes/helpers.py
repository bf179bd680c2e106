"""What the helper children of a process do, where it only waits for them: data loaders, commands that it started."""

from __future__ import annotations

from typing import List

from ncdiag.host import Host
from ncdiag.model import RankState
from ncdiag.processes import kernel, roles, unwoken
from ncdiag.processes.look import Look
from ncdiag.processes.proc import Proc
from ncdiag.stages.idle import TASKS
from ncdiag.stages.match import first
from ncdiag.stages.threads import frames_of, is_user, main_thread, since_fork

MOST = 4
"""Helpers of one process that are looked at."""
_AT_REST = " waits for its next task"
_WAITS_FOR_CHILDREN = (
    ("_try_get_data", "torch/utils/data/dataloader.py"),
    ("wait", "subprocess.py"),
    ("communicate", "subprocess.py"),
    ("join", "multiprocessing/process.py"),
    ("get", "multiprocessing/pool.py"),
    ("result", "concurrent/futures/_base.py"),
)


def places(host: Host, look: Look) -> List[str]:
    """`4711 (pt_data_worker) is at load (data.py:7)`, or its state and wait channel; workers that wait for a task come last. Empty where the process
    does not wait for its children, or moves."""
    state = look.state
    if not look.member.helpers or state.progress is None or state.progress.frames_changed or not waits(state):
        return []
    told = [text for helper in look.member.helpers[:MOST] if (text := _place(host, helper))]
    return sorted(told, key=lambda text: text.endswith(_AT_REST))


def waits(state: RankState) -> bool:
    """Whether its main thread waits for a child of it."""
    if state.call.get("name") in ("wait4", "waitid"):
        return True
    main = main_thread(state.threads)
    frames = frames_of(main) if main is not None else []
    return any(
        frame.name.rsplit(".", 1)[-1] == name and frame.file.endswith(file)
        for frame in frames
        for name, file in _WAITS_FOR_CHILDREN
    )


def _place(host: Host, helper: Proc) -> str:
    facts = kernel.look(host, helper.pid)
    who, writes = (
        f"{helper.pid} ({helper.comm})",
        ", and waits for somebody to read what it writes" if facts.sends else "",
    )
    if facts.state in ("Z", "X", "gone"):
        return f"{who} has ended"
    if roles.is_python(helper):
        threads = unwoken.read(host, helper.pid).threads
        frames = since_fork([frame for thread in threads if thread["main"] for frame in thread["frames"]])
        if first(TASKS, frames) is not None:
            return who + _AT_REST
        own = next((frame for frame in frames if is_user(frame)), None) or (frames[0] if frames else None)
        if own is not None:
            halted = ", stopped" if facts.state in ("T", "t") else ""
            return f"{who} is at {own.name} ({own.file.rsplit('/', 1)[-1]}:{own.line}){halted}{writes}"
    return f"{who} is in state {facts.state}" + (f", {facts.wchan}" if facts.wchan else "") + writes
