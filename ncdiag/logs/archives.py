"""Tar and zip archives of logs -> their members, one after the other, never unpacked to disk."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

FILES_LIMIT = 20_000  # members of one archive
ERRORS = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError)
"""What damaged, encrypted or cut archives raise."""


def is_tar(head: bytes) -> bool:
    """POSIX and GNU tar."""
    return head[257:262] == b"ustar"


def is_zip(head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04")


def may_be_archive(head: bytes) -> bool:
    """A tar, or something compressed that may hold one."""
    return is_tar(head) or head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"))


class _Chunks(io.RawIOBase):
    """A file of chunks that come one after the other."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def members(
    head: bytes, chunks: Iterator[bytes], path: str, note: Callable[[str], None]
) -> Iterator[tuple[str, BinaryIO]]:
    """`(name, file)` of each regular member; a file is valid until the next one is asked for. `chunks`: the archive, decompressed; `path`: where a zip is read anew."""
    count = 0
    try:
        for name, file in _tar(chunks) if is_tar(head) else _zip(path):
            count += 1
            if count > FILES_LIMIT:
                note(f"more than {FILES_LIMIT} members; the rest is not read")
                return
            yield name, file
    except ERRORS as error:
        note(f"read up to a damaged or unfinished place ({error})")


def _tar(chunks: Iterator[bytes]) -> Iterator[tuple[str, BinaryIO]]:
    with tarfile.open(fileobj=io.BufferedReader(_Chunks(chunks), 1 << 20), mode="r|") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield member.name, file  # type: ignore[misc]


def _zip(path: str) -> Iterator[tuple[str, BinaryIO]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as file:
                    yield member.filename, file  # type: ignore[misc]
