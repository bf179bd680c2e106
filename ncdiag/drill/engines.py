"""The interpreter that has torch, Ray and vLLM's CPU build: NCDIAG_LAB_PYTHON, else this one where it has them; and the model for it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path


def python() -> str:
    return os.environ.get("NCDIAG_LAB_PYTHON") or sys.executable


@functools.cache
def lacks(*modules: str) -> str | None:
    """None where `python()` has all of `modules`, else what is missing."""
    script = f"import importlib.util as u; print(*[m for m in {modules!r} if u.find_spec(m) is None])"
    try:
        done = subprocess.run([python(), "-c", script], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{python()} cannot be run ({error.strerror}); NCDIAG_LAB_PYTHON has to name an interpreter"
    missing = ", ".join(done.stdout.split()) if done.returncode == 0 else done.stderr.strip()[-200:]
    if not missing and not done.returncode:
        return None
    return f"{python()} lacks {missing}; NCDIAG_LAB_PYTHON has to name an interpreter that has it"


def make_model(folder: Path, *sizes: str) -> Path:
    """The small model, made once."""
    if not (folder / "config.json").exists():
        subprocess.run(
            [python(), str(Path(__file__).with_name("model.py")), str(folder), *sizes],
            check=True,
            capture_output=True,
        )
    return folder
