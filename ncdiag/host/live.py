"""The live machine."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat as stat_module
import subprocess
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ncdiag import redact
from ncdiag.host.answers import Output, Space, Stat, decode, mask
from ncdiag.host.errors import Absent, HostError, TimedOut, TooLarge, Unreadable, error_of

DEFAULT_LIMIT = 1 << 20
"""Bytes that a read takes at most unless it is told otherwise; kernel files are far smaller."""
_KINDS = {
    stat_module.S_IFREG: "file",
    stat_module.S_IFDIR: "folder",
    stat_module.S_IFLNK: "link",
    stat_module.S_IFCHR: "character",
    stat_module.S_IFBLK: "block",
    stat_module.S_IFSOCK: "socket",
    stat_module.S_IFIFO: "fifo",
}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command and its children; one that sits in the kernel is left to it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # it runs as somebody else
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
            raise error_of(path, error) from None
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
            raise error_of(path, error) from None
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
            raise error_of(path, error) from None

    def link(self, path: str) -> str:
        """The text of a symbolic link."""
        try:
            return os.readlink(path)
        except OSError as error:
            raise error_of(path, error) from None

    def real(self, path: str) -> str:
        """The path with every link in it resolved; Absent where it leads nowhere."""
        try:
            real = os.path.realpath(path)  # raises where a link's text cannot be read: /proc/PID/root of one that ends
            os.lstat(real)
        except OSError as error:
            raise error_of(path, error) from None
        return real

    def stat(self, path: str) -> Stat:
        """What lstat says; Absent where there is no such path."""
        try:
            found = os.lstat(path)
        except OSError as error:
            raise error_of(path, error) from None
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
            raise error_of(path, error) from None
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
            raise error_of(shown, error) from None
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise TimedOut(shown, "no answer within %g s" % timeout_s) from None
        except BaseException:  # Ctrl-C: it stands in a session of its own, which no terminal ends
            _end(process)
            raise
        return Output(process.returncode, redact.text(decode(out[:limit])), redact.text(decode(err[:limit])))

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
        return mask(path, decode(self.read_bytes(path, limit)))

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

    def sought(self, path: str) -> bool:
        """Whether it is known that a path is absent; a recording knows it only of what was looked for when it was made."""
        return True

    def _process_environ(self, pid: Optional[int]) -> Dict[str, str]:
        raw = decode(self.read_bytes("/proc/%s/environ" % pid))
        return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)
