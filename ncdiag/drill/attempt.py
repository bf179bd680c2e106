"""One try: fresh hosts, one fault, a real engine, and what ncdiag makes of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import rays
from .bench import Bench, Run, bench, make_model
from .faults import Fault

MODEL = Path(tempfile.gettempdir()) / "ncdiag-lab-model"


def run(fault: Fault, model: Path | None = None) -> tuple[Run, list[str]]:
    """One run on fresh hosts: what came out, and what is wrong with it."""
    made_model = None if fault.shape == "gloo" else make_model(model or MODEL)
    with bench(fault.shape, made_model) as made:
        fault.break_it(made)
        if fault.shape == "ray":
            start_ray(made)
        found = made.run()
        return found, fault.judge(found)


def start_ray(made: Bench) -> None:
    """Ray's head on `a` and a node on `b`, one pretended GPU each, with the environment that the fault gave the host."""
    names = [host for host in ("a", "b") if host not in made.skip]
    if names:
        rays.start(made.hosts, *names, environments={host: made.environment(host) for host in names})
