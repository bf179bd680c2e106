"""Occupancy, baseline, symptoms, an engine's share and the findings, from plain data."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ncdiag.bandwidth import blame, judge
from ncdiag.bandwidth.engine_share import Curve, Load, Machine, Shape, forwards
from ncdiag.bandwidth.expect import Expectation, socket_efficiency
from ncdiag.bandwidth.isolation.board import Verdict
from ncdiag.bandwidth.node.facts import memory_free
from ncdiag.bandwidth.occupancy import taken, too_many
from ncdiag.bandwidth.pairs import Isolation
from ncdiag.bandwidth.sweep import Row
from ncdiag.bandwidth.symptoms import Symptoms

from .test_tables import row

UUID = "1f1f-0001"


def node(users: list[dict[str, Any]], used: float = 3.0, error: str = "") -> dict[str, Any]:
    gpus: dict[str, Any] = {"error": error} if error else {"users": users, "used_mib": {f"GPU-{UUID}": used}}
    return {"cuda": [{"name": "NVIDIA H200", "uuid": UUID}], "gpus": gpus}


def test_idle_gpus_are_free() -> None:
    assert taken("gpu01", node([])) == []


def test_a_user_is_named() -> None:
    (said,) = taken(
        "gpu01",
        node([{"uuid": f"GPU-{UUID}", "pid": 77, "mib": 70000.0, "user": "eva", "command": "VLLM::Worker_TP0"}], 70000),
    )
    assert said == "gpu01: GPU 0 is used by pid 77 of eva, 70000 MiB: VLLM::Worker_TP0"


def test_a_gpu_that_is_not_ours_does_not_matter() -> None:
    assert taken("gpu01", node([{"uuid": "GPU-2222", "pid": 77, "mib": 70000.0, "user": "eva", "command": "x"}])) == []


def test_memory_held_by_an_unseen_process() -> None:
    assert "cannot be seen" in taken("gpu01", node([], 40000))[0]


def test_what_could_not_be_asked_is_not_free() -> None:
    assert "could not say" in taken("gpu01", node([], error="timed out"))[0]


@pytest.mark.parametrize(
    ("facts", "fits", "why"),
    [
        ({"cpus": 2, "memory_free": 64 * 10**9}, 8, "gpu01 has 2 CPUs and takes 8 ranks at most, 4 a CPU"),
        ({"cpus": 64, "memory_free": 1_000_000_000}, 3, "gpu01 has 1.0 GB of memory free"),
        ({"cuda": [{}, {}], "cpus": 64}, 2, "gpu01 has 2 GPUs and takes one rank each"),
        ({"cpus": 1, "memory_free": None}, 4, "gpu01 has 1 CPU and takes 4 ranks"),
    ],
)
def test_more_ranks_than_a_node_holds(facts: dict[str, Any], fits: int, why: str) -> None:
    assert too_many("gpu01", facts, fits) == ""
    assert why in too_many("gpu01", facts, fits + 1)
    assert "gpu01 has" in too_many("gpu01", facts, 100_000)


def test_memory_of_this_machine_is_read() -> None:
    free = memory_free()
    assert free is not None and free > 1 << 20


@pytest.mark.parametrize(
    ("symptoms", "kind"),
    [
        (Symptoms(stuck=True), "dead"),
        (Symptoms(out_gbytes_s=0.02, in_gbytes_s=1.0, idle_loss_out=0.0, cpu_ratio=1.1), "throttled-out"),
        (Symptoms(out_gbytes_s=1.0, in_gbytes_s=0.02, idle_loss_out=0.0, cpu_ratio=1.1), "throttled-in"),
        (Symptoms(out_gbytes_s=0.3, in_gbytes_s=0.9, idle_loss_out=0.03, cpu_ratio=1.0), "lossy"),
        (Symptoms(out_gbytes_s=0.1, in_gbytes_s=0.1, idle_loss_out=0.0, cpu_ratio=6.0), "cpu"),
        (Symptoms(out_gbytes_s=10.0, in_gbytes_s=10.0, counters={"packet_seq_err": 3}), "rdma-errors"),
        (Symptoms(out_gbytes_s=10.0, in_gbytes_s=10.0), "slow"),
    ],
)
def test_kinds_of_bad_nodes(symptoms: Symptoms, kind: str) -> None:
    assert symptoms.kind == kind
    (finding,) = blame.isolated(Isolation([Verdict("node", ("gpu07",), (), 0.2)], {"gpu07": symptoms}))
    assert finding.status.value == "fail" and finding.cause and "gpu07" in finding.summary


def test_against_expectation() -> None:
    wanted = Expectation(
        97.0,
        "2×400 Gb/s",
        remarks=["NET/IB without GDR on gpu07"],
        causes=[("gdr-disabled", "gpu07", "NET/IB without GDR on gpu07")],
    )
    (finding,) = judge.against([row(time_s=(1 << 28) / 71e9)], wanted, None, "nccl")
    assert finding.summary == "71 GB/s of about 97 expected on 2×400 Gb/s: NET/IB without GDR on gpu07"
    assert (finding.status.value, finding.cause, finding.where["node"]) == ("warn", "gdr-disabled", "gpu07")


def test_small_sizes_are_not_judged_as_bandwidth() -> None:
    (finding,) = judge.against([row(size_bytes=4096)], Expectation(97.0), None, "nccl")
    assert finding.status.value == "unknown"
    assert (
        finding.summary.startswith("the largest size, 4K, measures latency")
        and finding.remedy == "Measure larger sizes: --max 256M."
    )


MIB = 1 << 20


def curve(start_s: float, gbytes_s: float, *mib: int) -> list[Row]:
    """What two ranks measure where an operation takes `start_s`, and then each byte its time."""
    return [row(size_bytes=size * MIB, time_s=start_s + size * MIB / gbytes_s / 1e9) for size in mib]


@pytest.mark.parametrize(
    ("rows", "status", "words"),
    [
        # 64 MiB are too few for the peak, which the curve shows to be as high as it should be
        (curve(1e-3, 95.0, 8, 16, 32, 64), "unknown", "39.33 GB/s of about 97 expected were measured at 64M, the largest size, and it still rises (24.8 GB/s at 32M)"),
        # more bytes would not help: each of them is slow
        (curve(1e-3, 40.0, 8, 16, 32, 64), "fail", "of about 97 expected"),
        (curve(1e-6, 70.0, 8, 16, 32, 64), "warn", "of about 97 expected"),
        (curve(1e-3, 95.0, 64), "fail", "of about 97 expected"),
        (curve(1e-4, 97.0, 64, 512), "ok", "of about 97 expected"),
        # the fastest of the small sizes is not the largest size
        ([row(size_bytes=4 * MIB, time_s=4 * MIB / 120e9), *curve(1e-6, 96.0, 32, 64)], "ok", "of about 97 expected"),
        ([row(size_bytes=4 * MIB, time_s=4 * MIB / 120e9), *curve(1e-6, 70.0, 32, 64)], "warn", "of about 97 expected"),
    ],
)  # fmt: skip
def test_the_peak_is_judged_only_where_it_is_reached(rows: list[Row], status: str, words: str) -> None:
    (finding,) = judge.against(rows, Expectation(97.0), None, "nccl")
    assert (finding.status.value, words in finding.summary) == (status, True), finding.summary
    assert (finding.remedy == "Measure larger sizes: --max 512M.") == (status == "unknown")


def test_a_known_cause_is_told_on_the_rise_too() -> None:
    wanted = Expectation(97.0, causes=[("gdr-disabled", "gpu07", "NET/IB without GDR on gpu07")])
    (finding,) = judge.against(curve(1e-3, 95.0, 32, 64), wanted, None, "nccl")
    assert (finding.status.value, finding.cause) == ("fail", "gdr-disabled")


def test_wrong_data_fails() -> None:
    assert [finding.status.value for finding in judge.data([row(wrong=3)])] == ["fail"]


def test_share_of_a_step() -> None:
    """80 layers of 8192 in bfloat16 over a link of 50 GB/s without latency: the arithmetic by hand."""
    rows = [
        row(op=op, size_bytes=size, time_s=size / 50e9, median_s=size / 50e9)
        for op in ("all_reduce", "send_recv")
        for size in (1 << 14, 1 << 28)
    ]
    shape = Shape(
        layers=80, hidden=8192, parameters=70 * 10**9, active_parameters=70 * 10**9, weights_bytes=140 * 10**9
    )
    found = forwards(
        shape, Load(32, 8192), Curve(rows, "all_reduce"), Curve(rows, "send_recv"), 2, 2, Machine(4000.0, 700.0)
    )
    decode = next(one for one in found if one.layout == "TP=2" and one.what == "decode step")
    assert (decode.all_reduces, decode.all_reduce_bytes) == (160, 32 * 8192 * 2)
    assert decode.communication_s == pytest.approx(160 * 32 * 8192 * 2 / 50e9)
    assert decode.compute_s == pytest.approx(140e9 / 2 / (4000e9 * 0.8))
    pipeline = next(one for one in found if one.layout == "PP=2" and one.what == "prefill")
    assert (pipeline.sends, pipeline.all_reduces) == (2, 0)
    assert pipeline.communication_s == pytest.approx(2 * 8192 * 8192 * 2 / 50e9)
    assert (
        pipeline.communication_s
        < next(one for one in found if one.layout == "TP=2" and one.what == "prefill").communication_s
    )


def test_socket_efficiency() -> None:
    assert socket_efficiency(1500) == pytest.approx(0.9415, abs=1e-3)


def test_one_result_is_told_as_one() -> None:
    assert [finding.summary for finding in judge.data([row()])] == ["the result on random data is right"]
    assert [finding.summary for finding in judge.data([row(), row()])] == ["all 2 results on random data are right"]


def pair_test(one: str, other: str, value: float | None) -> dict[str, Any]:
    return {"round": 1, "nodes": [one, other], "rail": None, "busbw_gbytes_s": value, "stage": None, "error": None}


def test_suspects_that_stay_open_are_one_finding() -> None:
    verdicts = [Verdict("unsure", (f"gpu{number:02d}",), (), 0.5 + number / 100) for number in (8, 9, 10, 15)]
    (finding,) = blame.isolated(Isolation(verdicts))
    assert finding.status.value == "unknown" and "node" not in finding.where
    assert finding.summary.startswith(
        "gpu[08-10,15] are perhaps slow (60% of the usual bandwidth, median of their tests)"
    )
    (one,) = blame.isolated(Isolation(verdicts[:1]))
    assert one.where["node"] == "gpu08" and one.summary.startswith("gpu08 is perhaps slow")


def test_many_slow_pairs_that_no_node_explains_are_told() -> None:
    names = [f"n{number}" for number in range(8)]
    tests = [
        pair_test(one, other, 10.0 if number % 2 else 97.0)
        for number, (one, other) in enumerate(itertools.pairwise(names))
    ]
    isolation = Isolation(tests=tests, usual_gbytes_s=97.0, threshold=0.85)
    (finding,) = blame.isolated(isolation)
    assert finding.status.value == "unknown"
    assert finding.summary.startswith(
        "3 of 7 pairs are slow or got stuck, and no node explains them (n[1-6]): not single nodes"
    )
    isolation.verdicts = [Verdict("node", (name,), (), 0.1, False, 3) for name in ("n1", "n3")]
    assert not any("no node explains" in one.summary for one in blame.isolated(isolation))


@pytest.mark.parametrize(
    ("nodes", "words"), [(40, "what they share is slow"), (9, "what they share, or what the others")]
)
def test_a_large_group_may_as_well_be_the_healthy_side(nodes: int, words: str) -> None:
    """One slow uplink looks alike from both sides."""
    names = [f"n{number}" for number in range(nodes)]
    tests = [pair_test(one, other, 97.0) for one, other in itertools.pairwise(names)]
    isolation = Isolation([Verdict("group", tuple(names[:4]), (), 0.5, False, 8)], tests=tests, usual_gbytes_s=97.0)
    (finding,) = blame.isolated(isolation)
    assert words in finding.summary and ("that of the others" in (finding.remedy or "")) == (nodes == 9)
