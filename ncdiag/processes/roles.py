"""What a process of an engine is, from its title, command line and parents.

Titles: vLLM sets `VLLM::EngineCore`, `VLLM::Worker_TP0` … by setproctitle where that is installed; Ray sets `ray::RayWorkerProc…`;
before its title a child shows multiprocessing's `spawn_main` command line, or (fork) the command line of its parent.
"""

from __future__ import annotations

import os
import re

from ncdiag.processes.proc import Proc

_HELPERS = re.compile(
    r"multiprocessing\.(?:resource_tracker|semaphore_tracker) import main"
    r"|multiprocessing[/.]resource_tracker|loky\.backend\.resource_tracker"
    r"|torch[/.]_inductor[/.]compile_worker|vllm\.model_executor\.models\.registry|triton[/.]backends"
    r"|ray[/.](?:_private[/.](?!workers[/.]default_worker)|dashboard[/.]|autoscaler[/.]|util[/.])|ray/core/src|^ray::(?:IDLE|SPILL|RESTORE|DELETE|\w*Agent)|(?:^| )-m pip |py-spy|joblib\.externals"
)
_OWN = re.compile(r"-m ncdiag(?: |$)|^(?:\S*python\S* )?\S*/ncdiag (?:-\S+ )*[a-z]|ncdiag/bringup/guard\.py ")
_FORK_SERVER = re.compile(r"multiprocessing\.forkserver import main")
_SPAWN = re.compile(r"multiprocessing\.(?:spawn|popen_spawn_posix) import spawn_main|multiprocessing-fork")
_LAUNCHERS = re.compile(
    r"torch[./]distributed[./](?:run|launch|elastic)|(?:^|[/ ])torchrun(?:$| )|accelerate(?:[/.]commands[/.]| )launch"
    r"|deepspeed[/.]launcher|(?:^|[/ ])(?:deepspeed|horovodrun|mpirun|mpiexec(?:\.hydra)?|orterun|prterun|prted|orted|srun|slurmstepd"
    r"|hydra_pmi_proxy)(?:$|[ :])"
)
_SERVE = re.compile(r"(?:^|[/ ])vllm serve |vllm[./]entrypoints|(?:^|[/ ])vllm(?:-cpu)? serve(?:$| )")
_TITLE = re.compile(r"^(?P<prefix>[A-Za-z][\w-]*)::(?P<name>[A-Za-z]\w*)")
_VLLM_TITLES = {
    "APIServer": "api-server",
    "EngineCore": "engine-core",
    "Worker": "worker",
    "DPCoordinator": "coordinator",
    "DPSupervisor": "launcher",
}
_RAY_WORKER = re.compile(r"^ray::(?!IDLE)\w|ray/_private/workers/default_worker\.py")
_LAUNCHER_NAMES = re.compile(r"^(?:torchrun|mpirun|mpiexec|orterun|prterun|srun|slurmstepd|deepspeed|accelerate)")


def is_own(proc: Proc) -> bool:
    """ncdiag itself, or the guard of a command that it started: their command lines hold that of the engine."""
    return bool(_OWN.search(proc.command))


def is_python(proc: Proc) -> bool:
    """Whether its executable is a Python interpreter, or its title that of one."""
    if is_own(proc):
        return False
    name = os.path.basename(proc.exe) or (os.path.basename(proc.argv[0]) if proc.argv else proc.comm)
    return bool(re.match(r"(?:python|pypy|pt_main_thread)", name) or _TITLE.match(proc.command))


def is_helper(proc: Proc) -> bool:
    """Resource trackers, fork servers, compile workers, Ray's own agents: Python that is no rank."""
    return bool(_HELPERS.search(proc.command))


def is_fork_server(proc: Proc) -> bool:
    """multiprocessing's fork server; the processes that it forks show its command line too."""
    return bool(_FORK_SERVER.search(proc.command))


def is_spawned(proc: Proc) -> bool:
    """A child that multiprocessing started afresh and that has not taken a title yet."""
    return bool(_SPAWN.search(proc.command))


def is_forked(proc: Proc, parent: Proc | None) -> bool:
    """A child that runs its parent's image: same executable, same command line."""
    return parent is not None and proc.argv == parent.argv and proc.exe == parent.exe and bool(proc.argv)


def is_launcher(proc: Proc) -> bool:
    """torchrun, mpirun, srun, accelerate, deepspeed …"""
    return not is_own(proc) and bool(_LAUNCHERS.search(proc.command) or _LAUNCHER_NAMES.match(proc.comm))


def titled_role(proc: Proc) -> str | None:
    """The role that its own title or command line tells, None where they tell none."""
    if is_own(proc):
        return None
    for shown in (proc.command, proc.comm):
        if _RAY_WORKER.search(shown):
            return "ray-worker"
        title = _TITLE.match(shown)
        if title:
            stem = title.group("name").split("_")[0]
            for known, role in _VLLM_TITLES.items():
                if stem == known or (shown == proc.comm and len(shown) == 15 and known.startswith(stem)):
                    return role
    if _SERVE.search(proc.command + " "):
        return "headless" if re.search(r" --headless(?: |=|$)", proc.command) else "api-server"
    if is_launcher(proc):
        return "launcher"
    return None


_BELOW = {"api-server": "engine-core", "launcher": "script", "engine-core": "worker", "headless": "worker"}
"""Role of a process -> role of a multiprocessing child of it that has not said what it is."""


def role_of(proc: Proc, parent: Proc | None, parent_role: str | None) -> str:
    """Role of one process, from its own title or, for a child of multiprocessing without one, from its parent's role.

    A plain Python program is a `script`.
    """
    own = titled_role(proc)
    anonymous = is_forked(proc, parent) or is_spawned(proc) or is_fork_server(proc) or (proc.state == "Z" and not own)
    if parent is not None and anonymous and parent_role in _BELOW:
        return _BELOW[parent_role]
    return own or ("script" if is_python(proc) or proc.state == "Z" else "unknown")
