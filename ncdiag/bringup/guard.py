"""Starts a command, and sees to it that nothing of it outlives `ncdiag bringup`, however that ends. Runs as a program of its own.

    python -S -I guard.py CONTROL STATUS -- COMMAND…

CONTROL and STATUS are descriptors of pipes. The guard reads CONTROL: `term` and `kill` are passed on to all descendants, `free` lets them go
on without a guard, and its end (ncdiag is gone) means `term`, later `kill`. It writes one JSON object a line to STATUS: `{"pid"}`, `{"exit"}`,
`{"left": [pids]}`, `{"removed": [paths]}`. As the "child subreaper" of its descendants it also finds those whose parents have ended.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from typing import Any

PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG = 36, 1
GRACE_S = 10.0
"""From `term` to `kill`."""
LOOK_S = 1.0
SHM = "/dev/shm/"


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, int]:
    """pid -> parent of every process that can be seen; zombies are left out."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b") ")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                found[int(name)] = int(fields[1])
    return found


def descendants(table: dict[int, int], top: int) -> list[int]:
    """All processes below `top`, parents first."""
    below, todo = [], [top]
    while todo:
        current = todo.pop(0)
        children = [pid for pid, parent in table.items() if parent == current]
        below += children
        todo += children
    return below


def traces(pid: int, sockets: dict[str, str]) -> set[str]:
    """What `pid` would leave behind if it were killed: shared memory, and sockets with a name."""
    found = set()
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            for line in file:
                path = line.rstrip("\n").partition("/")
                if ("/" + path[2]).startswith(SHM) and not line.rstrip().endswith("(deleted)"):
                    found.add("/" + path[2])
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target in sockets:
                found.add(sockets[target])
            elif target.startswith((SHM, "/tmp/vllm_dist_")) and not target.endswith("(deleted)"):
                found.add(target)
    except OSError:
        pass
    return found


def named_sockets() -> dict[str, str]:
    """`socket:[inode]` -> path, of this network namespace's sockets with a path."""
    found = {}
    try:
        with open("/proc/net/unix", errors="replace") as file:
            for line in file:
                parts = line.split(None, 7)
                if len(parts) == 8 and parts[7].startswith("/"):
                    found[f"socket:[{parts[6]}]"] = parts[7].strip()
    except OSError:
        pass
    return found


def refusal(program: str, error: OSError) -> str:
    """Why the system did not start `program`, with the way out."""
    if isinstance(error, FileNotFoundError) and "/" not in program:
        return f"it is not in PATH; activate the environment that has it, or give its whole path (.../bin/{program})"
    if isinstance(error, FileNotFoundError) and os.path.exists(program):
        return "the interpreter that its first line (#!) names is not there; give that line one that is, or run it with one"
    if isinstance(error, FileNotFoundError):
        return (
            "there is no such file; look at the path, or activate the environment that has it and give its name alone"
        )
    if isinstance(error, PermissionError) and os.path.isdir(program):
        return "it is a folder; give the program in it"
    if isinstance(error, PermissionError):
        return f"{error.strerror}; make it executable (chmod +x), or run it with its interpreter"
    if error.errno == errno.ENOEXEC:
        return (
            "it has no first line with an interpreter (#!) and is no program; run it with its interpreter: sh, python"
        )
    return str(error.strerror)


class Guard:
    def __init__(self, control: int, status: int, command: list[str]) -> None:
        self.control, self.status = control, status
        self.began = time.time()
        self.traces: set[str] = set()
        self.ending: float | None = None
        self.exit: int | None = None
        self.pid = self._start(command)

    def say(self, **what: Any) -> None:
        try:
            os.write(self.status, json.dumps(what).encode() + b"\n")
        except OSError:
            pass

    def _start(self, command: list[str]) -> int:
        guard = os.getpid()
        told, tell = os.pipe()  # closed by a successful exec
        pid = os.fork()
        if pid:
            os.close(tell)
            failed = os.read(told, 4096).decode()
            self.say(**({"failed": failed} if failed else {"pid": pid}))
            return pid
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        os.close(self.control)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(tell, f"cannot run {command[0]}: {refusal(command[0], error)}".encode())
            os._exit(127)

    def alive(self) -> list[int]:
        return descendants(parents(), os.getpid())

    def signal_all(self, number: int) -> None:
        for pid in self.alive():
            try:
                os.kill(pid, number)
                if number == signal.SIGTERM:
                    os.kill(pid, signal.SIGCONT)
            except OSError:
                pass

    def note_traces(self) -> None:
        sockets = named_sockets()
        for pid in self.alive():
            self.traces |= traces(pid, sockets)

    def reap(self) -> None:
        while True:
            try:
                pid, state = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.exit = os.waitstatus_to_exitcode(state)
                self.say(exit=self.exit, left=self.alive())

    def end(self) -> None:
        """`term` now, `kill` after the grace; called again it kills at once."""
        if self.ending is not None:
            self.signal_all(signal.SIGKILL)
            return
        self.note_traces()
        self.ending = time.monotonic()
        self.signal_all(signal.SIGTERM)

    def run(self) -> None:
        looked = 0.0
        while self.exit is None or self.alive():
            ready, _, _ = select.select([self.control], [], [], 0.2)
            if ready:
                word = os.read(self.control, 64)
                if b"free" in word:
                    prctl(PR_SET_CHILD_SUBREAPER, 0)
                    os._exit(0)
                if b"kill" in word:
                    self.ending = self.ending or 0.0
                self.end()
                if not word:
                    self.control = os.open("/dev/null", os.O_WRONLY)  # never readable
                    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            self.reap()
            now = time.monotonic()
            if self.ending is not None and now - self.ending > GRACE_S:
                self.signal_all(signal.SIGKILL)
            elif now - looked > LOOK_S:
                self.note_traces()
                looked = now
        self.say(removed=self.clean())

    def clean(self) -> list[str]:
        """Removes what the processes left: only paths that they had open, that are younger than the guard, and that nobody else has open."""
        sockets, held = named_sockets(), set()
        for pid in parents():
            held |= traces(pid, sockets)
        removed = []
        for path in sorted(self.traces - held):
            try:
                if os.lstat(path).st_ctime >= self.began - 1:
                    os.unlink(path)
                    removed.append(path)
            except OSError:
                continue
        return removed


def main() -> None:
    control, status = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    os.set_inheritable(status, False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the word comes over the pipe
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Guard(control, status, sys.argv[sys.argv.index("--") + 1 :]).run()


if __name__ == "__main__":
    main()
