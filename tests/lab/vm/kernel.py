"""Debian's full kernel, downloaded and unpacked into a folder of its own; nothing is installed."""

from __future__ import annotations

import lzma
import re
import subprocess
from pathlib import Path
from typing import NamedTuple


class NotHere(Exception):
    """The lab cannot run on this machine; the text says what is missing."""


class Kernel(NamedTuple):
    version: str
    image: Path
    """The ELF vmlinux where it could be taken out, else the bzImage."""
    modules: Path
    """lib/modules/VERSION with modules.dep."""


def fetch(folder: Path) -> Kernel:
    """The newest kernel that apt knows; what is in `folder` already stays. Raises NotHere."""
    folder.mkdir(parents=True, exist_ok=True)
    package = _package()
    version = package.removeprefix("linux-image-")
    place = folder / version
    if not (place / "complete").exists():
        _unpack(package, place)
        _run(["depmod", "-b", str(place), version])
        _take_out(place / "boot" / f"vmlinuz-{version}", place / "boot" / f"vmlinux-{version}")
        (place / "complete").touch()
    image = place / "boot" / f"vmlinux-{version}"
    return Kernel(
        version, image if image.exists() else image.with_name(f"vmlinuz-{version}"), place / "lib" / "modules" / version
    )


def _package() -> str:
    """linux-image-amd64 is empty and depends on the real one, whose name holds the version."""
    told = _run(["apt-cache", "depends", "linux-image-amd64"])
    found = re.search(r"Depends: (linux-image-\d\S+)", told)
    if found is None:
        raise NotHere("apt knows no linux-image-amd64 (Debian on x86-64 has it; apt-get update may be due)")
    return found.group(1)


def _unpack(package: str, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    _run(["apt-get", "download", "-q", package], cwd=place, timeout_s=240)
    for archive in place.glob(f"{package}_*.deb"):
        _run(["dpkg", "-x", str(archive), str(place)], timeout_s=120)
        archive.unlink()


def _take_out(packed: Path, image: Path) -> None:
    """The ELF file in a bzImage packed with xz; nothing where it is packed otherwise."""
    content = packed.read_bytes()
    start = content.find(b"\xfd7zXZ\x00")
    if start < 0:
        return
    unpacked = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(content[start:])
    if unpacked.startswith(b"\x7fELF"):
        image.write_bytes(unpacked)


def _run(argv: list[str], cwd: Path | None = None, timeout_s: float = 60) -> str:
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise NotHere(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise NotHere(f"{' '.join(argv)} took more than {timeout_s:g} s") from None
    if done.returncode:
        raise NotHere(f"{' '.join(argv)} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
