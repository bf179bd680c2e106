"""How processes, launchers and engines say that they ended: one table for all who look for that.

Sources: bash; torchrun, Open MPI, srun; vLLM 0.6 to 0.33, uvicorn; Python's argparse.
"""

from __future__ import annotations

PROCESS = r"^(?:Killed|Aborted|Segmentation fault)(?: +\(core dumped\))?\s*$"
"""A shell's word, by itself: `Killed /user.slice/…` is systemd-oomd's of something else."""
LAUNCHER = (
    r"ChildFailedError|MPI_ABORT was invoked|noticed that process rank|exited on signal \d|Exited with exit code [1-9]"
)
ENGINE_CORE = r"EngineCore (?:failed|encountered)"
ENGINE = (
    r"Engine core initialization failed|Engine process failed to start|WorkerProc initialization failed|Application startup failed|EngineDeadError|"
    + ENGINE_CORE
)
ARGUMENTS = r"error: (?:unrecognized arguments|the following arguments are required|argument )"
"""It could not even start."""
