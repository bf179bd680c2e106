"""A saved run and a later one: what is told, and what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ncdiag.bandwidth import baseline, judge

from .test_tables import row
from .test_usage import refused

ABOUT: dict[str, Any] = {"nodes": ["a"], "ranks": 2, "backend": "nccl", "dtype": "float32"}


def saved(folder: Path, *rows: Any) -> str:
    path = str(folder / "kept.json")
    baseline.save(path, rows, ABOUT)
    return path


def damaged(folder: Path, **values: Any) -> str:
    """A baseline of two rows, the second changed; `...` takes a key away."""
    path = Path(saved(folder, row(), row(size_bytes=1 << 20)))
    data = json.loads(path.read_text())
    data["rows"][1] = {key: value for key, value in {**data["rows"][1], **values}.items() if value is not ...}
    path.write_text(json.dumps(data))
    return str(path)


def statuses(*told: Any) -> list[str]:
    return [finding.status.value for finding in judge.changes(*told)]


def test_round_trip_and_change(tmp_path: Path) -> None:
    kept = baseline.load(saved(tmp_path, row()))
    (same,), doubts = baseline.compare(kept, [row(time_s=1.02e-3)], ABOUT)
    assert not same.significant and doubts == []
    assert statuses([same], doubts) == []
    (slower,), doubts = baseline.compare(kept, [row(time_s=1.5e-3)], {**ABOUT, "ranks": 4})
    assert slower.significant and slower.ratio == pytest.approx(1 / 1.5)
    assert doubts == ["ranks: 2 then, 4 now"]
    assert statuses([slower], doubts) == ["unknown", "warn"]


@pytest.mark.parametrize(("share", "status"), [(0.9, []), (0.7, ["warn"]), (0.4, ["fail"]), (3.0, [])])
def test_small_sizes_are_compared_too(tmp_path: Path, share: float, status: list[str]) -> None:
    """On CPUs nothing larger may be measured at all."""
    kept = baseline.load(saved(tmp_path, row(size_bytes=65536, time_s=1e-4, half_width_s=1e-6)))
    now = row(size_bytes=65536, time_s=1e-4 / share, half_width_s=1e-6 / share)
    assert statuses(*baseline.compare(kept, [now], ABOUT)) == status


def test_what_is_within_the_scatter_is_no_change(tmp_path: Path) -> None:
    kept = baseline.load(saved(tmp_path, row(size_bytes=65536, time_s=1e-4, half_width_s=4e-5)))
    assert statuses(*baseline.compare(kept, [row(size_bytes=65536, time_s=2e-4, half_width_s=8e-5)], ABOUT)) == []


def test_one_finding_for_an_operation(tmp_path: Path) -> None:
    sizes = [1 << power for power in range(12, 16)]
    kept = baseline.load(saved(tmp_path, *(row(size_bytes=size, time_s=1e-4, half_width_s=1e-6) for size in sizes)))
    now = [row(size_bytes=size, time_s=1e-4 * (1 + index), half_width_s=1e-6) for index, size in enumerate(sizes)]
    (finding,) = judge.changes(*baseline.compare(kept, now, ABOUT))
    assert finding.summary.startswith("all_reduce of 32768 bytes:") and "(-75%)" in finding.summary
    assert finding.summary.endswith("slower in 3 of 4 measurements")


@pytest.mark.parametrize("now", [row(op="all_gather"), row(size_bytes=12345), row(in_place=True), None])
def test_nothing_to_compare_is_told(tmp_path: Path, now: Any) -> None:
    kept = baseline.load(saved(tmp_path, row(in_place=False)))
    (finding,) = judge.changes(*baseline.compare(kept, [now] if now else [], ABOUT))
    assert finding.status.value == "unknown" and finding.summary.startswith("nothing in the baseline matches")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "\udcff",
        '{"schema": 2, "rows": []}',
        '{"schema": 1}',
        '{"schema": 1, "rows": null}',
        "1" * 5000,
    ],
)
def test_a_file_that_is_no_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text, errors="surrogateescape")
    with pytest.raises(baseline.BaselineError, match=r"b\.json is no"):
        baseline.load(str(tmp_path / "b.json"))


def test_a_result_of_another_command_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"schema": 1, "command": "reach", "findings": []}')
    with pytest.raises(baseline.BaselineError, match="is a result of ncdiag reach, no baseline"):
        baseline.load(str(tmp_path / "b.json"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"busbw_gbytes_s": "x"}, "row 1: busbw_gbytes_s is 'x'"),
        ({"busbw_gbytes_s": 10**400}, "row 1: busbw_gbytes_s is a whole number of 1329 bits"),
        ({"busbw_gbytes_s": float("nan")}, "row 1: busbw_gbytes_s is nan"),
        ({"busbw_gbytes_s": -5}, "row 1: busbw_gbytes_s is -5"),
        ({"busbw_gbytes_s": 0}, "row 1: busbw_gbytes_s is 0"),
        ({"busbw_gbytes_s": True}, "row 1: busbw_gbytes_s is True"),
        ({"busbw_gbytes_s": ...}, "row 1 has no busbw_gbytes_s"),
        ({"busbw_half_width_gbytes_s": float("inf")}, "row 1: busbw_half_width_gbytes_s is inf"),
        ({"size_bytes": "1M"}, "row 1: size_bytes is '1M'"),
        ({"op": []}, "row 1: op is []"),
        ({"in_place": 0}, "row 1: in_place is 0"),
        ({"time_s": "fast"}, "row 1: time_s is 'fast'"),
    ],
)
def test_damaged_values_are_named_before_anything_is_measured(
    tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    """No interpreter has torch here: the refusal must come before one is looked for."""
    path = damaged(tmp_path, **values)
    assert said in refused("--baseline", path, "--python", "/nonexistent")


def test_rows_that_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"schema": 1, "rows": [1, 2]}')
    with pytest.raises(baseline.BaselineError, match="row 0 is 1, not an object"):
        baseline.load(str(tmp_path / "b.json"))


def test_the_report_does_not_overwrite_the_baseline(tmp_path: Path) -> None:
    path = saved(tmp_path, row())
    for switch in ("--baseline", "--save-baseline"):
        said = refused(switch, path, "-o", str(tmp_path / "." / "kept.json"), "--python", "/nonexistent")
        assert f"-o and {switch} name the same file" in said
