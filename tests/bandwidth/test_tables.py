"""nccl-tests' layout, read back; perftest and NCCL's diagnostics."""

from __future__ import annotations

import pytest

from ncdiag.bandwidth import results, sweep, tables
from ncdiag.bandwidth.sweep import Row

# A run of all_reduce_perf on two GPUs, shortened.
ALL_REDUCE = """# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 2 nGpus 1 minBytes 8 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   1234 on      gpu01 device  0 [0000:07:00] NVIDIA H200
#  Rank  1 Group  0 Pid   1234 on      gpu01 device  1 [0000:0a:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    11.62    0.00    0.00       0    11.43    0.00    0.00       0
  1073741824     268435456     float     sum      -1   3210.5  334.45  334.45       0   3212.4  334.25  334.25       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 167.2
"""
PER_ITERATION = """# Collective test starting: sendrecv_perf
#  Rank  0 Pid      1 on      gpu01 device  0 [0000:07:00] NVIDIA H200
#  Rank  1 Pid      2 on      gpu02 device  0 [0000:07:00] NVIDIA H200
#                                            out-of-place (+ per-iteration)        in-place (+ per-iteration)
#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99     i_cv     time   algbw   busbw  #wrong    i_min    i_max    i_p99     i_cv
     1048576        262144     float     sum      -1    50.00   20.97   20.97       0    48.00    60.00    59.00     0.02    51.00   20.56   20.56     N/A    49.00    61.00    60.00     0.02
"""
PERFTEST = """************************************
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 Number of qps   : 1		Transport type : IB
 Link type       : Ethernet
 Mtu             : 4096[B]
 GID index       : 3
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             392.19             391.80 		   0.747299
---------------------------------------------------------------------------------------
"""


def test_an_nccl_tests_table_is_read() -> None:
    found = results.read(ALL_REDUCE, "a.txt")
    assert found.ranks == [(0, "gpu01", 0), (1, "gpu01", 1)]
    last = found.rows[-1]
    assert (last.op, last.size_bytes, last.in_place, last.ranks, last.wrong) == ("all_reduce", 1 << 30, True, 2, 0)
    assert last.time_s == pytest.approx(3212.4e-6)
    assert last.busbw == pytest.approx(334.25, rel=1e-3)


def test_our_table_is_one_that_the_reader_takes() -> None:
    text = "# Collective test starting: all_reduce_perf\n" + tables.nccl_tests(results.nccl_tests(ALL_REDUCE).rows)
    again = results.nccl_tests(text)
    assert [(row.size_bytes, row.in_place, round(row.busbw, 1)) for row in again.rows] == [
        (8, False, 0.0),
        (8, True, 0.0),
        (1 << 30, False, 334.4),
        (1 << 30, True, 334.2),
    ]


def test_per_iteration_columns_and_unchecked_results() -> None:
    out, into = results.nccl_tests(PER_ITERATION).rows
    assert (out.op, out.min_s, out.p99_s, out.wrong) == ("send_recv", 48e-6, 59e-6, 0)
    assert into.wrong is None


def test_perftest_in_gigabits() -> None:
    found = results.read(PERFTEST, "w.txt").perftest
    assert found["Device"] == "mlx5_0"
    assert found["rows"][0]["average_gbytes_s"] == pytest.approx(391.80 / 8)


def test_nccls_diagnostics() -> None:
    text = "gpu01:10:11 [0] diag.cc:90 NCCL DIAG [OK] net bw: 389.20 Gbit/s min\ngpu01:10:11 [0] diag.cc:91 NCCL DIAG [FAIL] p2p: GPU 0 to GPU 1\n"
    good, bad = results.read(text, "n.log").diagnostics
    assert good["ok"] and good["gbytes_s"] == pytest.approx(48.65)
    assert not bad["ok"] and bad["host"] == "gpu01"


def test_something_else_is_refused_with_what_would_do() -> None:
    with pytest.raises(ValueError, match="neither nccl-tests' table"):
        results.read("hello", "x.txt")


@pytest.mark.parametrize(
    ("op", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("send_recv", 1.0)],
)
def test_bus_factors_of_eight_ranks(op: str, factor: float) -> None:
    assert sweep.bus_factor(op, 8) == factor


def test_numbers_fit_their_columns() -> None:
    assert [tables.fixed(value, 7) for value in (1.234, 12345.67, 123456.7, 12345678.0)] == [
        "   1.23",
        "12345.7",
        " 123457",
        "1.2e+07",
    ]


def row(**changes: object) -> Row:
    values = {
        "op": "all_reduce", "size_bytes": 1 << 28, "count": 1 << 26, "dtype": "float32", "in_place": True, "ranks": 2, "time_s": 1e-3, "half_width_s": 1e-6,
        "min_s": 9e-4, "median_s": 1e-3, "p99_s": 2e-3, "rank_spread": 0.0, "slowest_rank": 0, "samples": 100, "wrong": 0,
    }  # fmt: skip
    return Row(**{**values, **changes})  # type: ignore[arg-type]


def test_a_table_without_out_of_place() -> None:
    assert "N/A" in tables.nccl_tests([row()]).splitlines()[-1]
    line = tables.spread([row()]).splitlines()[-1].split()
    assert line == ["268435456", "in", "268.44", "0.10", "900.00", "1000.00", "2000.00", "100", "0.00", "0"]


def test_the_spread_keeps_to_eighty_columns() -> None:
    wide = row(
        size_bytes=1 << 34,
        time_s=3.3,
        half_width_s=9.0,
        min_s=1.1,
        median_s=3.3,
        p99_s=99.0,
        samples=99999,
        rank_spread=12.5,
        slowest_rank=1023,
        graph=True,
    )
    shown = tables.spread([row(), wide, row(half_width_s=None)])
    assert max(len(line) for line in shown.splitlines() if "graph" not in line) <= 80
    assert [len(line) for line in shown.splitlines()[:2]] == [len(line) for line in shown.splitlines()[2:4]]
    assert "?" in shown and "17179869184" in shown


def test_means_that_scatter_are_told() -> None:
    wide = [row(size_bytes=1024, half_width_s=4e-4), row(size_bytes=8, half_width_s=2e-4), row(half_width_s=1e-4)]
    assert tables.scatter(wide).startswith("# the means of 8, 1024 B scatter: up to ±40% with 95 % confidence;")
    many = [row(size_bytes=8 << number, half_width_s=4e-4 if number else 0.0) for number in range(7)]
    assert tables.scatter(many).startswith("# the means of 6 of 7 sizes scatter: up to ±40%")
    assert tables.scatter([row(), row(half_width_s=None), row(time_s=0.0, half_width_s=0.0)]) == ""


def test_a_narrow_terminal_gets_what_was_measured() -> None:
    rows = results.read(ALL_REDUCE, "a.txt").rows
    lines = tables.nccl_tests(rows, 80).splitlines()
    assert max(map(len, lines)) <= 80 and "334.45" in lines[-1] and "float" not in lines[-1]
    assert lines[1].split() == ["#", "size", *["time", "algbw", "busbw", "#wrong"] * 2]
    assert max(map(len, tables.nccl_tests(rows).splitlines())) == tables.WIDTH
