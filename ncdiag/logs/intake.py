"""Files, folders and standard input -> named streams of bytes, decompressed. What a file is, its first bytes say, not its name.

Every problem with one file becomes a note; the others are still read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

CHUNK = 1 << 20
FILES_LIMIT = 20_000  # in one folder tree
EXPANDED_LIMIT = 64 << 30  # bytes that one compressed file may become

_MAGIC = ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zst"))
_BINARY = (b"\x7fELF", b"\x89PNG", b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"GIF8", b"SQLite format 3", b"\xff\xd8\xff", b"%PDF")


@dataclass
class Stream:
    """One source: `chunks` can be read once."""

    name: str
    chunks: Iterator[bytes]
    head: bytes
    """The first bytes, decompressed; they are in `chunks`, too."""


@dataclass
class Intake:
    """What was asked for, and what could not be read."""

    notes: list[str] = field(default_factory=list)

    def streams(self, paths: Sequence[str]) -> Iterator[Stream]:
        """One stream a file, in a steady order. `-` is standard input."""
        files = [pair for path in paths for pair in self._files(path)]
        for name, path in files:
            stream = self._open(name, path)
            if stream is not None:
                yield stream

    def _files(self, path: str) -> Iterator[tuple[str, str]]:
        if path == "-":
            yield "stdin", path
        elif os.path.isdir(path):
            yield from self._walk(path)
        elif os.path.isfile(path) or (os.path.exists(path) and not os.path.islink(path)):
            yield path, path
        else:
            self.notes.append(f"{path}: no such file")

    def _walk(self, top: str) -> Iterator[tuple[str, str]]:
        count = 0
        for folder, folders, files in os.walk(top, onerror=lambda error: self.notes.append(f"{error.filename}: {error.strerror}")):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                path = os.path.join(folder, name)
                if name.startswith(".") or not os.path.isfile(path):
                    continue
                count += 1
                if count > FILES_LIMIT:
                    self.notes.append(f"{top}: more than {FILES_LIMIT} files; the rest is not read")
                    return
                yield os.path.relpath(path, top), path

    def _open(self, name: str, path: str) -> Stream | None:
        try:
            file: BinaryIO = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115
            chunks = self._chunks(name, file, path != "-")
            head = next(chunks, b"")
        except OSError as error:
            self.notes.append(f"{name}: {error.strerror or error}")
            return None
        if head.startswith(_BINARY):
            self.notes.append(f"{name}: not text, not read")
            return None
        return Stream(name, _again(head, chunks), head[:65536])

    def _chunks(self, name: str, file: BinaryIO, close: bool) -> Iterator[bytes]:
        try:
            first = file.read(CHUNK)
            kind = next((kind for magic, kind in _MAGIC if first.startswith(magic)), "")
            if not kind:
                yield first
                while chunk := file.read(CHUNK):
                    yield chunk
                return
            total = 0
            for chunk in _expand(kind, first, file):
                total += len(chunk)
                if total > EXPANDED_LIMIT:
                    self.notes.append(f"{name}: expands beyond {EXPANDED_LIMIT >> 30} GiB; the rest is not read")
                    return
                yield chunk
        except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
            self.notes.append(f"{name}: read up to a damaged or unfinished place ({error})")
        except _NoReader as error:
            self.notes.append(f"{name}: {error}")
        finally:
            if close:
                file.close()


class _NoReader(Exception):
    pass


class _Joined(io.RawIOBase):
    """What was read already, then the rest of the file."""

    def __init__(self, first: bytes, file: BinaryIO) -> None:
        self._first = io.BytesIO(first)
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._first.read(len(buffer)) or self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _expand(kind: str, first: bytes, file: BinaryIO) -> Iterator[bytes]:
    joined = io.BufferedReader(_Joined(first, file), CHUNK)
    reader: Any
    if kind == "gz":
        reader = gzip.GzipFile(fileobj=joined)
    elif kind == "bz2":
        reader = bz2.BZ2File(joined)
    elif kind == "xz":
        reader = lzma.LZMAFile(joined)  # noqa: SIM115
    else:
        reader = _zstd(joined)
    while chunk := reader.read1(CHUNK):  # what there is: a cut archive still gives its beginning
        yield chunk


def _zstd(joined: Any) -> Any:
    try:
        import zstandard  # type: ignore[import-not-found]
    except ImportError:
        raise _NoReader("zstd-compressed; expand it with `zstd -d`, or pip install zstandard") from None
    return zstandard.ZstdDecompressor().stream_reader(joined, read_across_frames=True)


def _again(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest
