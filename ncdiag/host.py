"""The one door to a machine: read a file, list a folder, run a command, ask the system. Travels to nodes.

`Host` is the live machine. `Recorded` is a Host over a captured tree. Both mask secrets at the door, so that no facts
can hold one. Everything a probe cannot have becomes a `HostError` with its reason; absent is never taken for empty.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import stat as stat_module
import subprocess
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ncdiag import redact
from ncdiag.tree import Tree

DEFAULT_LIMIT = 1 << 20
"""Bytes that a read takes at most unless it is told otherwise; kernel files are far smaller."""


class HostError(Exception):
    """What could not be had. `str(error)` is a reason fit for a finding."""

    def __init__(self, what: str, reason: str, number: Optional[int] = None) -> None:
        super().__init__("%s: %s" % (what, reason))
        self.what = what
        self.reason = reason
        self.errno = number


class Absent(HostError):
    """There is no such file, folder or program, or it was not recorded."""


class Unreadable(HostError):
    """It is there, and reading it failed; `errno` says how (EACCES, EINVAL, EIO …)."""


class TooLarge(HostError):
    """A file larger than the caller is prepared to take; `content` is what was read of it."""

    def __init__(self, what: str, limit: int, content: bytes) -> None:
        super().__init__(what, "larger than the %d bytes expected of it" % limit)
        self.content = content


class TimedOut(HostError):
    """A command that did not end within its limit; it was ended."""


@dataclass(frozen=True)
class Output:
    """What a command printed."""

    rc: int
    out: str
    err: str


@dataclass(frozen=True)
class Stat:
    """What lstat says of one path."""

    kind: str
    """`file`, `folder`, `link`, `character`, `block`, `socket`, `fifo`."""
    mode: int
    """Permission bits, e.g. 0o666."""
    uid: int
    gid: int
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Space:
    """What statvfs says of the file system that holds one path."""

    total_bytes: int
    free_bytes: int
    """Free for an unprivileged user."""
    inodes: int
    inodes_free: int


_KINDS = {
    stat_module.S_IFREG: "file",
    stat_module.S_IFDIR: "folder",
    stat_module.S_IFLNK: "link",
    stat_module.S_IFCHR: "character",
    stat_module.S_IFBLK: "block",
    stat_module.S_IFSOCK: "socket",
    stat_module.S_IFIFO: "fifo",
}
_PROC_ENVIRON = re.compile(r"/proc/[^/]+(?:/task/\d+)?/environ$")
_PROC_CMDLINE = re.compile(r"/proc/(?:\d+|self|thread-self)(?:/task/\d+)?/cmdline$")


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def mask(path: str, content: str) -> str:
    """`content` of `path` with its secrets masked."""
    if _PROC_ENVIRON.search(path):
        return redact.nul_separated(content, arguments=False)
    if _PROC_CMDLINE.search(path):
        return redact.nul_separated(content, arguments=True)
    return redact.text(content)


def _error(path: str, error: OSError) -> HostError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    kind = Absent if error.errno in (errno.ENOENT, errno.ENOTDIR) else Unreadable
    return kind(path, reason, error.errno)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command and its children; one that sits in the kernel is left to it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        pass


class Host:
    """The machine that this process runs on.

    `python`, `pid` and `environment` name the engine to look at: its interpreter, a running process of it, and variables
    that it will be started with (they go before those of the process). All three may be missing.
    """

    recorded = False

    def __init__(
        self,
        *,
        python: Optional[str] = None,
        pid: Optional[int] = None,
        environment: Optional[Mapping[str, str]] = None,
        model: Optional[str] = None,
    ) -> None:
        self.python = python
        self.pid = pid
        self.model = model
        self._environment = dict(environment or {})

    @property
    def node(self) -> str:
        """The node's host name as the kernel has it."""
        return socket.gethostname() or "unnamed"

    # the primitives: what a live machine and a captured tree answer differently

    def read_bytes(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        """The raw content of a file, unmasked: for magic numbers and version strings, never for facts as they are."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _error(path, error) from None
        try:
            if stat_module.S_ISDIR(os.fstat(descriptor).st_mode):
                raise Unreadable(path, os.strerror(errno.EISDIR), errno.EISDIR)
            pieces, left = [], limit + 1
            while left > 0:
                piece = os.read(descriptor, min(left, 1 << 20))
                if not piece:
                    break
                pieces.append(piece)
                left -= len(piece)
        except OSError as error:
            raise _error(path, error) from None
        finally:
            os.close(descriptor)
        if left <= 0:
            raise TooLarge(path, limit, b"".join(pieces))
        return b"".join(pieces)

    def head(self, path: str, size: int) -> bytes:
        """The first `size` bytes of a file of any length, unmasked."""
        try:
            return self.read_bytes(path, size)
        except TooLarge as error:
            return error.content[:size]

    def list(self, path: str) -> List[str]:
        """Names in a folder, sorted. Raises Absent where there is none."""
        try:
            return sorted(os.fsencode(name).decode("utf-8", "backslashreplace") for name in os.listdir(path))
        except OSError as error:
            raise _error(path, error) from None

    def link(self, path: str) -> str:
        """The text of a symbolic link."""
        try:
            return os.readlink(path)
        except OSError as error:
            raise _error(path, error) from None

    def real(self, path: str) -> str:
        """The path with every link in it resolved; Absent where it leads nowhere."""
        try:
            real = os.path.realpath(path)  # raises where a link's text cannot be read: /proc/PID/root of one that ends
            os.lstat(real)
        except OSError as error:
            raise _error(path, error) from None
        return real

    def stat(self, path: str) -> Stat:
        """What lstat says; Absent where there is no such path."""
        try:
            found = os.lstat(path)
        except OSError as error:
            raise _error(path, error) from None
        return Stat(
            _KINDS.get(stat_module.S_IFMT(found.st_mode), "file"),
            stat_module.S_IMODE(found.st_mode),
            found.st_uid,
            found.st_gid,
            found.st_size,
        )

    def space(self, path: str) -> Space:
        """Size and free space of the file system that holds `path`."""
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise _error(path, error) from None
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)

    def run(self, argv: Sequence[str], timeout_s: float = 5.0, limit: int = 4 << 20) -> Output:
        """Run a read-only program without a shell; Absent where it is not installed, TimedOut when it had to be ended."""
        shown = " ".join(argv)
        program = shutil.which(argv[0], path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
        if program is None:
            raise Absent(shown, "%s is not installed" % argv[0], errno.ENOENT)
        environment = {**os.environ, "LC_ALL": "C", "LANG": "C"}
        try:
            process = subprocess.Popen(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise _error(shown, error) from None
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise TimedOut(shown, "no answer within %g s" % timeout_s) from None
        return Output(process.returncode, redact.text(_decode(out[:limit])), redact.text(_decode(err[:limit])))

    def environ(self) -> Dict[str, str]:
        """The engine's environment, masked: of `pid`, else of this process, with `environment` on top."""
        base = self._process_environ(self.pid) if self.pid is not None else dict(os.environ)
        return redact.environ({**base, **self._environment})

    def ask(self, name: str, question: Callable[[], Any]) -> Any:
        """`question()`: plain JSON that no file holds (a system call, a name look-up). `name` identifies the answer in a recording.

        Raises Unreadable with the reason when the question raises OSError.
        """
        try:
            return question()
        except OSError as error:
            raise Unreadable(name, str(error), error.errno) from None

    # what is built on them

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> str:
        """The text of a file, masked, non-UTF-8 bytes as `\\xNN`."""
        return mask(path, _decode(self.read_bytes(path, limit)))

    def value(self, path: str) -> Optional[str]:
        """The stripped text of a small file, None where it is absent. Raises Unreadable otherwise."""
        try:
            return self.read(path, 65536).strip()
        except Absent:
            return None

    def number(self, path: str) -> Optional[int]:
        """The integer in a small file (decimal, or hexadecimal with 0x); None where it is absent, unreadable or no number."""
        try:
            return int((self.value(path) or "").split()[0], 0)
        except (ValueError, IndexError, Unreadable):
            return None

    def names(self, path: str) -> List[str]:
        """Names in a folder, empty where there is no such folder. Raises Unreadable otherwise."""
        try:
            return self.list(path)
        except Absent:
            return []

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except HostError:
            return False
        return True

    def _process_environ(self, pid: Optional[int]) -> Dict[str, str]:
        raw = _decode(self.read_bytes("/proc/%s/environ" % pid))
        return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)


class Recorded(Host):
    """A Host over a captured tree: a folder or tar archive that holds `sys/`, `proc/`, `cmd/` and META.json.

    Links are resolved inside the tree only. What was not recorded is Absent.
    """

    recorded = True

    def __init__(self, tree: Tree, name: Optional[str] = None) -> None:
        super().__init__()
        self._tree = tree
        self._meta = self._load_meta()
        self._name = name
        self.pid = self._meta.get("pid")
        self.python = self._meta.get("python")
        self.model = self._meta.get("model")

    def _load_meta(self) -> Dict[str, Any]:
        try:
            meta = json.loads(self._tree.read("/META.json", 64 << 20).decode("utf-8", "replace"))
        except (OSError, ValueError):
            return {}
        return meta if isinstance(meta, dict) else {}

    @property
    def node(self) -> str:
        return str(self._meta.get("node") or self._name or "recorded")

    def read_bytes(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        try:
            real = self._tree.resolve(path)
            recorded = self._meta.get("errors", {}).get(real)
            if recorded:
                raise OSError(int(recorded), os.strerror(int(recorded)))
            content = self._tree.read(real, limit + 1)
        except OSError as error:
            raise _error(path, error) from None
        if len(content) > limit:
            raise TooLarge(path, limit, content)
        return content

    def list(self, path: str) -> List[str]:
        try:
            told = self._meta.get("listed", {}).get(self._tree.resolve(path), ())
            return sorted({*self._tree.list(path), *told})
        except OSError as error:
            raise _error(path, error) from None

    def link(self, path: str) -> str:
        try:
            return self._tree.link(path)
        except OSError as error:
            raise _error(path, error) from None

    def real(self, path: str) -> str:
        try:
            return self._tree.resolve(path)
        except OSError as error:
            raise _error(path, error) from None

    def stat(self, path: str) -> Stat:
        told = self._answer("stat", path)
        if told is not None:
            return Stat(**told)
        try:
            kind, size = self._tree.kind(path)
        except OSError as error:
            raise _error(path, error) from None
        mode = int(str(self._meta.get("modes", {}).get(path, "444")), 8)
        return Stat(kind, mode, 0, 0, size)

    def space(self, path: str) -> Space:
        told = self._answer("space", path)
        if told is None:
            raise Absent(path, "its file system's size was not recorded")
        return Space(**told)

    def run(self, argv: Sequence[str], timeout_s: float = 5.0, limit: int = 4 << 20) -> Output:
        shown = " ".join(argv)
        for name, command in self._meta.get("commands", {}).items():
            if command == shown:
                return self._output(name, shown)
        raise Absent(shown, "this command was not recorded")

    def _output(self, name: str, shown: str) -> Output:
        exits = self._meta.get("exits", {})
        try:
            content = _decode(self._tree.read("/cmd/" + name, 64 << 20))
        except OSError as error:
            raise _error(shown, error) from None
        trailer = re.search(r"^# \$ .* ; exit status (\d+)\n?\Z", content, re.M)
        rc = int(exits.get(name, trailer.group(1) if trailer else 0))
        if rc == 127:
            raise Absent(shown, "%s was not installed there" % shown.split()[0], errno.ENOENT)
        return Output(rc, redact.text(content[: trailer.start()] if trailer else content), "")

    def environ(self) -> Dict[str, str]:
        told = self._meta.get("environ")
        if not isinstance(told, dict):
            raise Absent("environment", "it was not recorded")
        return redact.environ({str(name): str(value) for name, value in told.items()})

    def ask(self, name: str, question: Callable[[], Any]) -> Any:
        answers = self._meta.get("answers", {})
        if name not in answers:
            raise Absent(name, "it was not recorded")
        answer = answers[name]
        if isinstance(answer, dict) and "errno" in answer and "reason" in answer:
            raise Unreadable(name, str(answer["reason"]), answer["errno"])
        return redact.data(answer)

    def _answer(self, kind: str, path: str) -> Optional[Dict[str, Any]]:
        told = self._meta.get(kind, {}).get(path)
        if isinstance(told, int):
            raise _error(path, OSError(told, os.strerror(told)))
        return told
