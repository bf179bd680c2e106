"""One try: fresh hosts, one fault, a real engine, and what ncdiag makes of it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from . import rays, watch
from .bench import Bench, NotSet, bench
from .engines import make_model
from .faults import Fault
from .outcome import Run

MODEL = Path(tempfile.gettempdir()) / "ncdiag-lab-model"
"""Kept from one try to the next, where that is wanted."""


@contextmanager
def broken(fault: Fault, model: Path | None, sshd: Sequence[str] | None = None) -> Iterator[Bench]:
    """Fresh hosts with the fault set, and Ray where the shape wants it; nothing of the engine runs yet. `model` None: one that ends with them.

    Raises NotSet.
    """
    with ExitStack() as stack:
        try:
            made = stack.enter_context(bench(fault.shape, sshd=sshd))
            if fault.shape != "gloo":
                made.model = make_model(model or made.hosts.folder / "model")
            fault.break_it(made)
            if fault.shape == "ray":
                start_ray(made)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            raise NotSet(_words(error)) from error
        yield made


def _words(error: Exception) -> str:
    said = getattr(error, "stderr", None) or b""
    return f"{error} {said.decode(errors='replace')[-500:] if isinstance(said, bytes) else said[-500:]}".strip()


def run(fault: Fault, model: Path | None = MODEL) -> tuple[Run, list[str]]:
    """One run on fresh hosts: what came out, and what is wrong with it."""
    with broken(fault, model) as made:
        found = watch.run(made)
        return found, fault.judge(found)


def record(fault: Fault, found: Run, wrong: list[str], wall_s: float) -> dict[str, Any]:
    """The answer as plain data."""
    cause = fault.said(found)
    return {
        "fault": fault.name,
        "what": fault.what,
        "right": not wrong,
        "wrong": wrong,
        "outcome": found.outcome,
        "cause": cause.get("cause", ""),
        "confidence": cause.get("confidence", "before the start" if fault.probe else ""),
        "where": cause.get("where", {}),
        "verdict_s": found.verdict_s,
        "wall_s": round(wall_s, 1),
        "summary": cause.get("summary", ""),
    }


def start_ray(made: Bench) -> None:
    """Ray's head on `a` and a node on `b`, one pretended GPU each, with the environment that the fault gave the host."""
    names = [host for host in ("a", "b") if host not in made.skip]
    if names:
        rays.start(made.hosts, *names, environments={host: made.environment(host) for host in names})
