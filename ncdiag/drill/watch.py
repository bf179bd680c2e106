"""`ncdiag bringup` on two hosts of a lab: it starts the first node's command and sees the second node over SSH or Ray only."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from . import engines
from .bench import ROOT, Bench, NotSet
from .hosts import end
from .outcome import Run, result

OTHER_S = 0.5
"""How long the engine of the other host may take to end; what it leaves goes with its host."""
STACK_S = 30.0


def run(made: Bench) -> Run:
    """Starts everything, waits for ncdiag's answer, ends everything. Raises NotSet."""
    made.prepare()
    other = None
    if made.shape in ("gloo", "nodes") and "b" not in made.skip:
        other = made.start("b")
    made.act()
    out = made.hosts.folder / "result.json"
    out.unlink(missing_ok=True)
    started = time.time()
    watch = made.hosts["a"].start(
        *_argv(made, out), log=made.hosts.folder / "ncdiag.out", env={"PYTHONPATH": str(ROOT)}
    )
    hung = ""
    try:
        watch.wait(made.timeout_s + 60)
    except subprocess.TimeoutExpired:
        hung = _stack(watch.pid)
    finally:
        made.over = True
        end(watch)
        if other is not None:
            end(other, OTHER_S)
    if made.failures:
        raise NotSet(made.failures[0])
    words = hung + (made.hosts.folder / "ncdiag.out").read_text(errors="replace")
    return Run(result(out, started), watch.returncode, words, made.text("a"), made.text("b"), started, made.acted_at)


def _argv(made: Bench, out: Path) -> list[str]:
    where = ["--nodes", "ssh:b", "--ssh-config", str(made.ssh.config)] if made.shape in ("gloo", "nodes") else []
    return [
        sys.executable,
        "-m",
        "ncdiag",
        "bringup",
        *([] if made.preflight else ["--no-preflight"]),
        "--then",
        "stop",
        "--on-stall",
        "stop",
        "--stall-after",
        str(made.stall_after_s),
        "--timeout",
        str(made.timeout_s),
        *where,
        "--format",
        "json",
        "-o",
        str(out),
        "--quiet-child",
        str(made.log("a")),
        *made.options,
        "--",
        "env",
        "--unset=PYTHONPATH",
        *[f"{name}={value}" for name, value in made.environment("a").items()],
        *made.command("a"),
    ]


def _stack(pid: int) -> str:
    """Where ncdiag itself stands when it has not ended in time; empty where that cannot be had."""
    argv = [str(Path(engines.python()).parent / "py-spy"), "dump", "--pid", str(pid)]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(argv, capture_output=True, text=True, timeout=STACK_S, check=False).stdout
    return ""
