"""The interpreter that has torch, Ray and vLLM's CPU build: NCDIAG_LAB_PYTHON, else this one where it has them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys


def python() -> str:
    return os.environ.get("NCDIAG_LAB_PYTHON") or sys.executable


@functools.cache
def lacks(*modules: str) -> str | None:
    """None where `python()` has all of `modules`, else what is missing."""
    script = f"import importlib.util as u; print(*[m for m in {modules!r} if u.find_spec(m) is None])"
    done = subprocess.run([python(), "-c", script], capture_output=True, text=True, check=False)
    missing = done.stdout.strip() if done.returncode == 0 else done.stderr.strip()[-200:]
    return (
        f"{python()} lacks {missing}; NCDIAG_LAB_PYTHON names an interpreter that has it"
        if missing or done.returncode
        else None
    )
