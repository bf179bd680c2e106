"""Start-up stages: one ordered list for every executor, recognised by stacks and by log lines.

`stage_of_threads` reads stacks, `stage_of_log_line` a line of a log, `stage_of_log` its last lines; `STAGES` is the order. A stack of a version that
is not known here gives a more general stage (`import`, `rendezvous`, `collective`, `program`), never a wrong one.
"""

from ncdiag.stages.markers import stage_of_log, stage_of_log_line
from ncdiag.stages.order import ON_OTHERS, STAGES, WAITING, Stage, describe, order, stage
from ncdiag.stages.threads import StageMatch, frames_of, main_thread, stage_of_threads

__all__ = [
    "ON_OTHERS",
    "STAGES",
    "WAITING",
    "Stage",
    "StageMatch",
    "describe",
    "frames_of",
    "main_thread",
    "order",
    "stage",
    "stage_of_log",
    "stage_of_log_line",
    "stage_of_threads",
]
