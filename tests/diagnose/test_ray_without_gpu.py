"""A process that finds no GPU driver: placed without a GPU by Ray, or on a machine without a driver."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

JOB = "Job 'raysubmit_Ab12' submitted successfully"
NONE = "env: CUDA_VISIBLE_DEVICES= HOME=/root"
INFER = "RuntimeError: Failed to infer device type"
TORCH = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"
STATUS = ["$ ray status", "Usage:", " 0.0/16.0 CPU", " 0.0/8.0 GPU"]


def causes(*lines: str) -> list[Cause]:
    raw = "\n".join([*lines, ""]).encode()
    return of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes


@pytest.mark.parametrize("error", [INFER, TORCH])
@pytest.mark.parametrize("fact", [[NONE], ["NVIDIA_VISIBLE_DEVICES=void"], STATUS], ids=["none", "void", "elsewhere"])
def test_placed_without_a_gpu(error: str, fact: list[str]) -> None:
    found = causes(JOB, *fact, error)
    assert (found[0].cause, found[0].confidence) == ("ray-driver-without-gpu", "likely")
    assert "driver-library-missing" in [cause.cause for cause in found]


@pytest.mark.parametrize(
    "lines",
    [
        [NONE, INFER],
        [JOB, INFER],
        [JOB, "CUDA_VISIBLE_DEVICES=0,1", INFER],
        [JOB, *STATUS[:3], " 0.0/0.0 GPU", INFER],
        [JOB, "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=", INFER],
        [JOB, NONE, "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory"],
    ],
    ids=["no Ray", "nothing shown", "some GPUs", "none in the cluster", "another variable", "a library"],
)
def test_a_driver_that_is_missing(lines: list[str]) -> None:
    assert causes(*lines)[0].cause == "driver-library-missing"
