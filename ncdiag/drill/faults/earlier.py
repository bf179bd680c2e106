"""What an earlier run or a wrong clock leaves on a node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .. import engines
from ..bench import JOB, PORT, Bench
from ..hosts import wait_for
from .base import fault

CLOCK = Path(__file__).parent.parent / "clock.c"
"""The source of what shows a process a wall clock that is ahead."""
HOLDS = f"""
import os, setproctitle, socket, time
if os.fork():
    os._exit(0)
held = bytearray(os.urandom(1 << 20)) * 300
listener = socket.create_server(("0.0.0.0", {PORT}))
setproctitle.setproctitle("VLLM::Worker_TP0")
time.sleep(900)
"""
"""A worker whose starter is gone: it still listens and holds 300 MiB."""


@fault("gloo", "rank 0 of an earlier run still waits on a", "stale-process", node="a", name="leftover", quick=True)
def leftover(made: Bench) -> None:
    made.env["a"]["STEPS"] = made.env["b"]["STEPS"] = "400"
    made.before.append(_earlier)


def _earlier(made: Bench) -> None:
    environment = made.environment("a")
    log = made.hosts.folder / "earlier.out"
    made.hosts["a"].start(engines.python(), str(JOB), log=log, env=environment)
    if not wait_for(lambda: f":{PORT} " in made.hosts["a"].run("ss", "-ltn").stdout, 30):
        raise RuntimeError(f"the earlier run did not come up: {log.read_text()[-500:]}")


@fault(
    "nodes",
    "a worker of an earlier run is left on a (found before the start)",
    "stale-process",
    node="a",
    name="leftover",
    probe="leftover-processes",
)
def leftover_worker(made: Bench) -> None:
    made.preflight = True
    made.before.append(_left_behind)


def _left_behind(made: Bench) -> None:
    made.hosts["a"].start(engines.python(), "-c", HOLDS)
    if not wait_for(lambda: f":{PORT} " in made.hosts["a"].run("ss", "-ltn").stdout):
        raise RuntimeError("the worker of the earlier run did not come up")


@fault("gloo", "the clock of b is an hour ahead", "clock-skew", probe="clock-offset", quick=True)
@fault("nodes", "the clock of b is an hour ahead", "clock-skew", probe="clock-offset")
def clock_off(made: Bench) -> None:
    """Nothing of a start minds it, so it comes up; that the clocks differ has to be said all the same."""
    library = made.hosts.folder / "clock.so"
    argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK)]
    if shutil.which("cc") is None:
        raise RuntimeError("a C compiler (cc) is needed to show a host another clock")
    subprocess.run(argv, check=True, capture_output=True)
    made.preflight = True
    wrong = {"LD_PRELOAD": str(library), "CLOCK_AHEAD_S": "3600"}
    made.env["b"] |= wrong
    made.ssh.environment(made.hosts["b"], wrong)
