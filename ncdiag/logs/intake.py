"""Files, folders, archives and standard input -> named streams of bytes, decompressed. What a file is, its first bytes say, not its name.

Every problem with one file becomes a note; the others are still read.
"""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import io
import lzma
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ncdiag.logs import zstd
from ncdiag.logs.archives import ERRORS, is_tar, is_zip, members

CHUNK = 1 << 20
FILES_LIMIT = 20_000  # in one folder tree
EXPANDED_LIMIT = 64 << 30  # bytes that one compressed file may become
BOMB_BYTES, BOMB_RATIO = (
    1 << 30,
    {"gz": 200, "bz2": 2000, "xz": 2000, "zst": 2000},
)  # what expands beyond both is no log
PIPE_WAIT_S = 3.0  # for somebody to write to a named pipe

EMPTY = "nobody wrote to it. Keep both outputs of every rank (> FILE 2>&1) with NCCL_DEBUG=INFO, and see whether the disk is full (df)"

_MAGIC = ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zst"))
_BINARY = (
    b"\x7fELF",
    b"\x89PNG",
    b"\x80\x02",
    b"\x80\x03",
    b"\x80\x04",
    b"\x80\x05",
    b"GIF8",
    b"SQLite format 3",
    b"\xff\xd8\xff",
    b"%PDF",
)
_WIDE = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CONTROL = bytes(set(range(1, 7)) | set(range(14, 27)) | set(range(28, 32)) | {127})  # what no log prints


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
        """One stream a file or member of an archive, in a steady order and with different names. `-` is standard input. A stream is to be read before the next is asked for."""
        names: set[str] = set()
        for name, path in [pair for given in paths for pair in self._files(given)]:
            own = path if name in names else name
            names.add(own)
            yield from self._open(own, path)

    def _files(self, path: str) -> Iterator[tuple[str, str]]:
        if path == "-":
            yield "stdin", path
        elif os.path.isdir(path):
            yield from self._walk(path)
        elif os.path.exists(path):
            yield path, path
        else:
            self.notes.append(f"{path}: " + ("a link to nothing" if os.path.islink(path) else "no such file"))

    def _walk(self, top: str) -> Iterator[tuple[str, str]]:
        count = 0
        for folder, folders, files in os.walk(
            top, onerror=lambda error: self.notes.append(f"{error.filename}: {error.strerror}")
        ):
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

    def _open(self, name: str, path: str) -> Iterator[Stream]:
        try:
            file = sys.stdin.buffer if path == "-" else _opened(path)
            raw = self._expanded(name, file, path != "-")
            head = next(raw, b"")
        except OSError as error:
            self.notes.append(f"{name}: {error.strerror or error}")
            return
        if is_tar(head) or (is_zip(head) and path != "-"):
            for member, inner in members(
                head, _again(head, raw), path, lambda text: self.notes.append(f"{name}: {text}")
            ):
                raw = self._expanded(f"{name}/{member}", inner, False)
                yield from self._text(f"{name}/{member}", next(raw, b""), raw)
        else:
            yield from self._text(name, head, raw)

    def _text(self, name: str, head: bytes, rest: Iterator[bytes]) -> Iterator[Stream]:
        if _is_binary(head):
            self.notes.append(f"{name}: not text, not read")
            return
        chunks = _plain(_again(head, rest))
        first = next((chunk for chunk in chunks if chunk), b"")
        if not first and any(note.startswith(f"{name}: ") for note in self.notes):
            return
        if head and not first:
            self.notes.append(f"{name}: nothing but zero bytes, not read")
            return
        if not first or (len(first) < CHUNK and first.isspace()):
            what = "holds nothing but blank lines" if first else "is empty (0 bytes)"
            self.notes.append(f"{name} {what}: {EMPTY}")
        yield Stream(name, _again(first, chunks), first[:65536])

    def _expanded(self, name: str, file: BinaryIO, close: bool) -> Iterator[bytes]:
        try:
            first = file.read(CHUNK)
            kind = next((kind for magic, kind in _MAGIC if first.startswith(magic)), "")
            if not kind:
                yield first
                yield from _rest(file)
                return
            total = 0
            packed = _Joined(first, file)
            for chunk in _expand(kind, packed):
                total += len(chunk)
                if total > EXPANDED_LIMIT or (total > BOMB_BYTES and total > BOMB_RATIO[kind] * packed.taken):
                    self.notes.append(
                        f"{name}: expands to more than {total >> 30} GiB, which no log does; the rest is not read"
                    )
                    return
                yield chunk
        except (*ERRORS, lzma.LZMAError, zlib.error) as error:
            self.notes.append(f"{name}: read up to a damaged or unfinished place ({error})")
        except zstd.NoZstd as error:
            self.notes.append(f"{name}: {error}")
        finally:
            if close:
                file.close()


def _opened(path: str) -> BinaryIO:
    """A regular file, or a pipe that somebody writes to. Raises OSError with one sentence for everything else."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "neither a file nor a folder, not read")
    if stat.S_ISREG(mode):
        return open(path, "rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    until = time.monotonic() + PIPE_WAIT_S
    while True:
        try:
            first = os.read(descriptor, CHUNK)
        except BlockingIOError:  # a writer, and nothing from it yet
            os.set_blocking(descriptor, True)
            return open(descriptor, "rb")
        if first:
            os.set_blocking(descriptor, True)
            return io.BufferedReader(_Joined(first, open(descriptor, "rb")), CHUNK)
        if time.monotonic() > until:
            os.close(descriptor)
            raise OSError(errno.EAGAIN, "a pipe that nobody writes to, not read")
        time.sleep(0.05)


def _rest(file: BinaryIO) -> Iterator[bytes]:
    """The chunks that follow, without the holes of sparse files."""
    while chunk := file.read(CHUNK):
        yield chunk
        if chunk[0] == 0 and not chunk.strip(b"\0") and not _skip_hole(file):
            return


def _skip_hole(file: BinaryIO) -> bool:
    """Goes on to the next data. False when only a hole is left."""
    try:
        if isinstance(getattr(file, "raw", None), io.FileIO) and file.seekable():  # a member of an archive has no holes
            file.seek(os.lseek(file.fileno(), file.tell(), os.SEEK_DATA))
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def _is_binary(head: bytes) -> bool:
    """Known formats, and beginnings full of control characters. Zero bytes do not count: crashes and rotation leave them in logs."""
    if head.startswith(_BINARY):
        return True
    if head.startswith(tuple(mark for mark, _ in _WIDE)):
        return False
    sample = head[:65536].translate(None, b"\0")
    first = sample[:64]
    return len(first.translate(None, _CONTROL)) < len(first) and len(sample) - len(
        sample.translate(None, _CONTROL)
    ) > 0.05 * len(sample)


def _plain(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-8 without zero bytes, whatever the encoding was. A chunk may become empty."""
    first = next(chunks, b"")
    wide = next((name for mark, name in _WIDE if first.startswith(mark)), "")
    if wide:
        decoder = codecs.getincrementaldecoder(wide)("replace")
        for chunk in _again(first[2:], chunks):
            yield decoder.decode(chunk).encode("utf-8", "replace")
        return
    for chunk in _again(first.removeprefix(codecs.BOM_UTF8), chunks):
        yield chunk.replace(b"\0", b"") if b"\0" in chunk else chunk


class _Joined(io.RawIOBase):
    """What was read already, then the rest of the file."""

    def __init__(self, first: bytes, file: BinaryIO) -> None:
        self._first = io.BytesIO(first)
        self._file = file
        self.taken = 0
        """Bytes given so far."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._first.read(len(buffer)) or self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.taken += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _expand(kind: str, packed: _Joined) -> Iterator[bytes]:
    joined = io.BufferedReader(packed, CHUNK)
    reader: Any
    if kind == "gz":
        reader = gzip.GzipFile(fileobj=joined)
    elif kind == "bz2":
        reader = bz2.BZ2File(joined)
    elif kind == "xz":
        reader = lzma.LZMAFile(joined)  # noqa: SIM115
    else:
        reader = zstd.opened(joined)
    while chunk := reader.read1(CHUNK):  # what there is: a cut archive still gives its beginning
        yield chunk


def _again(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest
