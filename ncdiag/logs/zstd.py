"""zstd-compressed bytes -> plain ones: by the module zstandard where it is installed, else by the program `zstd`."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from typing import BinaryIO, Protocol


class NoZstd(Exception):
    """Neither is there; the text names the way out."""


class Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def opened(packed: BinaryIO) -> Readable:
    """A reader of what `packed` holds. Raises NoZstd; reading raises OSError where it is damaged or cut, behind all that could be read."""
    try:
        import zstandard  # type: ignore[import-not-found]
    except ImportError:
        program = shutil.which("zstd")
    else:
        reader: Readable = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
        return reader
    if program is None:
        raise NoZstd("zstd-compressed, not read: install zstd (apt install zstd, or pip install zstandard), or expand it elsewhere with zstd -d")  # fmt: skip
    return _Program(program, packed)


class _Program:
    """`zstd -dc` at work, fed by a thread."""

    def __init__(self, program: str, packed: BinaryIO) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([program, "-dcq"], stdin=pipe, stdout=pipe, stderr=pipe)
        self._feeder = threading.Thread(target=self._feed, args=(packed,), daemon=True)
        self._feeder.start()

    def _feed(self, packed: BinaryIO) -> None:
        into = self._process.stdin
        assert into is not None
        with contextlib.suppress(OSError), into:  # it has ended: what it says is told at the end of reading
            while chunk := packed.read(1 << 20):
                into.write(chunk)

    def read1(self, size: int, /) -> bytes:
        out = self._process.stdout
        assert out is not None
        chunk: bytes = out.read1(size)  # type: ignore[attr-defined]
        if not chunk:
            self._feeder.join()
            said = self._end()
            if self._process.returncode:
                raise OSError(said.strip().replace("\n", "; ") or f"zstd ended with {self._process.returncode}")
        return chunk

    def _end(self) -> str:
        out, errors = self._process.stdout, self._process.stderr
        assert out is not None and errors is not None
        with out, errors:
            said = errors.read().decode("utf-8", "replace")
        self._process.wait()
        return said

    def __del__(self) -> None:
        if self._process.poll() is None:  # whoever read it has had enough
            self._process.kill()
            self._end()
