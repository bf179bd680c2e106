"""A read-only file system that passes a folder on, slowly or up to a point: `python slowfs.py FOLDER MOUNTPOINT [--rate BYTES_A_S] [--stall]`.

Runs in the lab's interpreter, which has mfusepy, on a machine with /dev/fuse and libfuse. `--stall`: reads of weights beyond their header never
return. `--rate`: so many bytes of weights a second.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import os
import threading
import time

import mfusepy

HEADER = 64 << 10
STAT = ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime", "st_nlink", "st_size", "st_uid")


class Slow(mfusepy.Operations):
    def __init__(self, folder: str, rate: float, stall: bool) -> None:
        self._folder, self._rate, self._stall = folder, rate, stall
        self._forever = threading.Event()

    def _real(self, path: str) -> str:
        return os.path.join(self._folder, path.lstrip("/"))

    def getattr(self, path: str, fh: int | None = None) -> dict:
        try:
            found = os.stat(self._real(path))
        except OSError as error:
            raise mfusepy.FuseOSError(error.errno) from None
        return {name: getattr(found, name) for name in STAT}

    def readdir(self, path: str, fh: int) -> list:
        return [".", "..", *os.listdir(self._real(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._real(path), os.O_RDONLY)

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        weights = path.endswith(".safetensors")
        if weights and self._stall and offset >= HEADER:
            self._forever.wait()
        data = os.pread(fh, size, offset)
        if weights and self._rate:
            time.sleep(len(data) / self._rate)
        return data


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("mountpoint")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--stall", action="store_true")
    asked = parser.parse_args()
    mfusepy.FUSE(Slow(asked.folder, asked.rate, asked.stall), asked.mountpoint, foreground=True, ro=True)
