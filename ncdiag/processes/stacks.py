"""Python and native stacks of one process, by py-spy's JSON.

py-spy seizes the target's threads with ptrace for the few milliseconds of a read (native frames of a large program: up to a second) and
lets them go by itself, even when it is ended; no signal is sent. A stopped, traced, frozen or D-state thread never answers that, so such a process is read without pausing it.

Native frames of a process in another pid namespace (a container, seen from its machine) can only be read from inside that namespace: from
outside py-spy 0.4 ends with UNW_EBADREG. So py-spy then runs there, with this machine's own files.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncdiag import redact
from ncdiag.model import Frame
from ncdiag.processes import calls
from ncdiag.processes.denied import way_out

PYTHON_TIMEOUT_S = 5.0
NO_FRAME = "no Python frame"
"""How the error of a process begins whose interpreter runs nothing."""
SPARED = "native frames spared"
"""How a reason starts that is by design: other processes' native frames tell enough."""
NATIVE_TIMEOUT_S = 20.0
ATTEMPTS = 3
"""Reads of a busy process that fail by chance are tried again."""

LOCALS = frozenset(
    {
        "host",
        "hostname",
        "host_name",
        "master_addr",
        "port",
        "master_port",
        "rank",
        "world_size",
        "local_rank",
        "group_rank",
        "init_method",
        "distributed_init_method",
        "backend",
        "timeout",
        "ranks",
        "src",
        "dst",
    }
)
"""Names of local variables that may be kept; values of all others never leave py-spy's output."""
_VALUE_LENGTH = 200
_NAME_LENGTH = 200
"""Of a frame; those of C++ templates have thousands of characters."""
_ADDRESS = re.compile(r"^0x[0-9a-f]+$")  # a native frame without a symbol; its address differs from process to process

# What of py-spy's words means that trying again, or reading without a pause, may help.
_RETRY = re.compile(
    r"suspend process|waitpid|Failed to copy|Bad address|Input/output error|invalid utf|No python processes|interpreter",
    re.I,
)


@dataclass
class Stacks:
    """What one read gave. `threads` as in RankState; empty with `error` set when nothing could be read."""

    threads: list[dict[str, Any]] = field(default_factory=list)
    native: bool = False
    error: str | None = None
    """Why there is nothing, or (with threads) why there are no native frames; with the way out."""
    variables: dict[str, str] = field(default_factory=dict)
    gone: bool = False
    paused: bool = False
    """Whether the process was paused for it, which wakes its threads."""


PROGRAM: str | None = None
"""A py-spy of its own, where one was brought along."""


def py_spy() -> str | None:
    """The py-spy program: the one that was brought along, beside this interpreter, of its installed package, else in PATH; None where there is none."""
    if PROGRAM is not None:
        return PROGRAM
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    if os.access(beside, os.X_OK):
        return beside
    return next((path for path in _installed() if os.access(path, os.X_OK)), None) or shutil.which("py-spy")


def _installed() -> Iterator[str]:
    """Where the package that this interpreter imports has its program: `pip install --user`, and `--target`, whose record is wrong about it."""
    try:
        package = importlib.metadata.distribution("py-spy")
    except importlib.metadata.PackageNotFoundError:
        return
    for file in package.files or ():
        if file.name == "py-spy":
            yield os.path.realpath(str(package.locate_file(file)))
    yield str(package.locate_file("bin/py-spy"))


def read(
    pid: int,
    *,
    native: bool = False,
    nonblocking: bool = False,
    variables: bool = False,
    timeout_s: float | None = None,
) -> Stacks:
    """Stacks of all Python threads of `pid`, innermost frame first.

    Where native frames cannot be had, Python frames alone; where the process cannot be paused, a read without a pause.
    """
    program = py_spy()
    if program is None:
        return Stacks(error="py-spy is not installed beside ncdiag; run: pip install py-spy")
    reason, without_native = "", ""
    for options in _plan(native, nonblocking):
        limit = (
            timeout_s
            if timeout_s and "--native" in options
            else NATIVE_TIMEOUT_S
            if "--native" in options
            else PYTHON_TIMEOUT_S
        )
        enter, number = _inside(pid) if "--native" in options else ([], pid)
        out, reason = _run(
            [*enter, program, "dump", "--json", "--pid", str(number), *options, *(["--locals"] if variables else [])],
            limit,
        )
        if out is not None:
            stacks = _parse(out, pid, "--native" in options)
            stacks.error, stacks.paused = stacks.error or without_native or None, options != ["--nonblocking"]
            return stacks
        if not os.path.exists(f"/proc/{pid}"):
            return Stacks(error=f"process {pid} ended during the dump", gone=True)
        if "--native" in options:
            without_native = f"no native frames: {way_out(pid, reason)}"
        elif not _RETRY.search(reason):
            break
    return Stacks(error=way_out(pid, reason))


def _plan(native: bool, nonblocking: bool) -> list[list[str]]:
    if nonblocking:
        return [["--nonblocking"]] * ATTEMPTS
    first: list[list[str]] = [["--native"]] if native else []
    return [*first, *[[]] * (ATTEMPTS - 1), ["--nonblocking"]]


def _inside(pid: int) -> tuple[list[str], int]:
    """What to put before a command that has to run in the pid namespace of `pid`, and its number there; nothing where that is ours."""
    tools = [shutil.which("nsenter"), shutil.which("unshare")]
    try:
        if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid"):
            return [], pid
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            number = next(int(line.split()[-1]) for line in file if line.startswith("NSpid:"))
    except (OSError, StopIteration, ValueError):
        return [], pid
    if not all(tools):
        return [], pid
    return [str(tools[0]), "--target", str(pid), "--pid", "--", str(tools[1]), "--mount-proc"], number


def _run(argv: list[str], timeout_s: float) -> tuple[str | None, str]:
    """(output, "") or (None, py-spy's words)."""
    environment = {**os.environ, "RUST_BACKTRACE": "0", "NO_COLOR": "1"}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return None, f"cannot run {argv[0]}: {error.strerror}"
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with what it started in another namespace
            return None, f"py-spy gave no answer within {timeout_s:.1f} s"
    if process.returncode:
        return None, redact.text(
            err.decode("utf-8", "replace").split("Stack backtrace")[0].strip()
        ) or f"py-spy ended with {process.returncode}"
    return out.decode("utf-8", "replace"), ""


def _parse(out: str, pid: int, native: bool) -> Stacks:
    try:
        threads = json.loads(out)
        stacks = Stacks(native=native)
        for thread in threads:
            stacks.threads.append(_thread(thread, pid))
            _keep_variables(thread, stacks.variables)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Stacks(error=f"py-spy's answer is not understood ({type(error).__name__}: {error})")
    if not any(thread["frames"] for thread in stacks.threads):
        return Stacks(error=f"{NO_FRAME} yet: the interpreter is just starting or ending")
    return stacks


def _thread(thread: dict[str, Any], pid: int) -> dict[str, Any]:
    tid = _tid(pid, thread.get("os_thread_id"), thread.get("thread_id"))
    main = tid == pid or thread.get("thread_name") == "MainThread"
    frames = [
        Frame(
            _ADDRESS.sub("?", frame["name"])[:_NAME_LENGTH],
            (frame.get("module") or frame.get("filename") or ""),
            int(frame.get("line") or 0),
            bool(frame.get("module")),
        )
        for frame in thread["frames"]
    ]
    return {
        "name": redact.text(str(thread.get("thread_name") or "")),
        "active": bool(thread.get("active")),
        "main": main,
        "tid": pid if main and tid is None else tid,
        "owns_gil": bool(thread.get("owns_gil")),
        "frames": frames,
    }


_TID_AT = {"x86_64": 720, "aarch64": 208}
"""Machine -> where glibc keeps a thread's number in its `struct pthread` (nptl/descr.h), whose address pthread_self() gives."""


def _tid(pid: int, told: Any, handle: Any) -> int | None:
    """The number of a thread here. py-spy tells that of a container's as it is inside; of Python 3.10 and older, read without a pause, it only tells the
    handle by which pthread knows it. None where neither leads to a thread of `pid`."""
    if told is None and isinstance(handle, int):
        raw = calls.memory(pid, handle + _TID_AT.get(platform.machine(), 0), 4)
        told = int.from_bytes(raw, sys.byteorder) if raw else None
    if told is None or os.path.exists(f"/proc/{pid}/task/{told}"):
        return told if isinstance(told, int) else None
    return next((tid for tid, inside in _numbers(pid) if inside == told), None)


def _numbers(pid: int) -> Iterator[tuple[int, int]]:
    """(number here, number in its own pid namespace) of every thread."""
    for name in os.listdir(f"/proc/{pid}/task") if os.path.exists(f"/proc/{pid}/task") else ():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/task/{name}/status").read_text("utf-8", errors="replace").splitlines()
            yield from ((int(name), int(line.split()[-1])) for line in lines if line.startswith("NSpid:"))


def _keep_variables(thread: dict[str, Any], kept: dict[str, str]) -> None:
    for frame in thread["frames"]:
        for local in frame.get("locals") or ():
            name, shown = str(local.get("name")), local.get("repr")
            if name in LOCALS and isinstance(shown, str) and name not in kept:
                kept[name] = redact.text(shown[:_VALUE_LENGTH])


def python_frames(threads: list[dict[str, Any]]) -> tuple[Any, ...]:
    """The Python frames of all threads, to compare two reads or two processes by."""
    return tuple(
        sorted(
            (
                thread["name"],
                tuple((frame.name, frame.file, frame.line) for frame in thread["frames"] if not frame.native),
            )
            for thread in threads
        )
    )
