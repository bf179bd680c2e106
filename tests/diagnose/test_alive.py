"""What a run outlives did not end it; what another run shows says nothing about the one before."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import diagnose

ERROR = "libfabric: cannot pin: RLIMIT_MEMLOCK is too low"
RUN = "# nThread 1 nGpus 1 minBytes 8 maxBytes 32 step: 2(factor) warmup iters: 5 iters: 20"
ROWS = "\n".join(
    f"{1 << n:>12} {1 << n - 2:>12}     float     sum      -1   400.10   20.96   20.96      0" for n in range(20, 25)
)
DONE = "# Avg bus bandwidth    : 20.96"


def first(tmp_path, *lines: str) -> tuple[str, str]:
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines) + "\n")
    cause = diagnose([str(path)]).verdict.causes[0]
    return cause.cause, cause.confidence


def test_alone_it_is_sure(tmp_path) -> None:
    assert first(tmp_path, ERROR) == ("memlock-limit", "sure")


@pytest.mark.parametrize("lines", [(ERROR, RUN, ROWS, DONE), (RUN, ERROR, ROWS), (RUN, ROWS, DONE, ERROR, RUN, ROWS)])
def test_results_follow(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] == "healthy"


@pytest.mark.parametrize(
    "lines",
    [
        ("$ mpirun -np 2 ./all_reduce_perf -g 1", ERROR, "$ mpirun -np 2 -x A=1 ./all_reduce_perf -g 1", RUN, ROWS, DONE),
        (RUN, ERROR, RUN, ROWS, DONE),
        (ERROR, "mpirun noticed that process rank 1 exited on signal 11", RUN, ROWS, DONE),
        (RUN, ROWS, DONE, ERROR),
    ],
)  # fmt: skip
def test_another_run_works(tmp_path, lines) -> None:
    assert first(tmp_path, *lines)[0] != "healthy"


def test_trouble_follows_the_results(tmp_path) -> None:
    late = "node7 kernel: NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus."
    path = tmp_path / "job.log"
    path.write_text("\n".join([ERROR, RUN, ROWS, late]) + "\n")
    causes = {cause.cause: cause.confidence for cause in diagnose([str(path)]).verdict.causes}
    assert causes["memlock-limit"] != "sure" and "gpu-hardware-fault" in causes
