"""How long an operation takes, until that is known well enough."""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List

from ncdiag.bandwidth.node.counters import tcp_totals
from ncdiag.bandwidth.node.group import GRAPHED, Group
from ncdiag.bandwidth.node.operations import Case

_T975 = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
    2.09,
)
"""Student's t for a two-sided confidence of 95 %, by degrees of freedom from 1."""
BATCHES = (5, 60)
"""Batches of iterations a size takes, at least and at most."""
BATCH_S = 0.03
GRAPH_BELOW_S = 1e-3
"""Operations on GPUs that take less are tried as CUDA graphs too, as an engine launches its decode steps: else it may be the CPU that is measured."""
SETTLE_BELOW_S = 0.05


def measure(group: Group, case: Case, job: Dict[str, Any]) -> Dict[str, Any]:
    """Times one case until the mean is known to `precision` with 95 % confidence, or its time is up. Times in seconds.

    On a GPU the mean is that of batches, as nccl-tests has it. A sample is one operation; in a graph (`graph`) the mean of GRAPHED of them.
    """
    case.fill()
    began = time.perf_counter()
    warm: List[float] = []
    for done in range(int(job["warmup"])):
        warm = group.time(case.operation, 1)
        if (
            group.agree(time.perf_counter() - began)[0] > float(job["budget_s"]) and done
        ):  # the first one may make connections
            break
    each = group.agree(warm[-1])[0]
    if group.cuda and each < SETTLE_BELOW_S:  # the last connections may have been made just now
        each = group.agree(group.total(case.operation, 5) / 5)[0]
    batch = int(min(max(BATCH_S / max(each, 1e-7), 1), 200))
    launch = group.graph(case.operation, batch) if group.cuda and each < GRAPH_BELOW_S else None
    run, held = (launch, GRAPHED) if launch else (case.operation, 1)
    launches = max(batch // held, 1)
    tcp = tcp_totals()
    samples: List[float] = []
    means: List[float] = []
    spread = math.inf
    began = time.perf_counter()
    while len(means) < BATCHES[1]:
        if group.cuda:
            means.append(group.total(run, launches) / launches / held)
        else:
            taken = group.time(run, batch)
            samples += taken
            means.append(sum(taken) / len(taken))
        spread = half_width(means)
        worst, spent = group.agree(spread / (sum(means) / len(means)), time.perf_counter() - began)
        if (len(means) >= BATCHES[0] and worst <= float(job["precision"])) or (
            len(means) >= 2 and spent > float(job["budget_s"])
        ):
            break
    if group.cuda:  # noting the time between operations holds them up by microseconds: these do not count for the mean
        samples = [seconds / held for seconds in group.time(run, batch)]
    lost = {name: value - tcp[name] for name, value in tcp_totals().items()}
    row = {
        "event": "row",
        "op": case.op,
        "size": case.size,
        "count": case.count,
        "in_place": case.in_place,
        "samples": len(samples),
        "graph": launch is not None,
        "mean_s": sum(means) / len(means),
        "half_width_s": spread if math.isfinite(spread) else None,
        **quantiles(samples),
        "tcp": lost,
    }
    row["wrong"] = case.wrong() if job["check"] else None
    return row


def half_width(means: List[float]) -> float:
    """Half of the 95 % confidence interval of the mean, from the means of batches; infinite for one batch."""
    count = len(means)
    if count < 2:
        return math.inf
    mean = sum(means) / count
    deviation = math.sqrt(sum((value - mean) ** 2 for value in means) / (count - 1))
    return (_T975[count - 2] if count - 2 < len(_T975) else 1.98) * deviation / math.sqrt(count)


def quantiles(samples: List[float]) -> Dict[str, float]:
    """Nearest rank, as nccl-tests has it."""
    ordered = sorted(samples)
    return {
        "min_s": ordered[0],
        "median_s": ordered[len(ordered) // 2],
        "p99_s": ordered[min(math.ceil(len(ordered) * 0.99), len(ordered)) - 1],
        "max_s": ordered[-1],
    }
