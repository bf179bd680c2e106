"""JUnit and Prometheus as those who read them need them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ncdiag.report import junit, prometheus
from ncdiag.report.compare import compare
from ncdiag.report.result import Result
from ncdiag.report.saved import result_of
from tests.report import samples


def suites(*results: Result, fail_on: str = "fail") -> ElementTree.Element:
    return ElementTree.fromstring(junit.render(results, None, fail_on).encode())


def test_one_case_a_finding_and_the_numbers_agree() -> None:
    result = samples.preflight()
    root = suites(result)
    (suite,) = root
    cases = list(suite.iter("testcase"))
    assert root.tag == "testsuites" and suite.get("name") == "ncdiag preflight"
    assert len(cases) == len(result.findings) == int(suite.get("tests", ""))
    for tag, key, expected in (("failure", "failures", 2), ("error", "errors", 4), ("skipped", "skipped", 4)):
        assert len(list(suite.iter(tag))) == int(suite.get(key, "")) == int(root.get(key, "")) == expected
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(set(names)) == len(names), "CI servers drop cases of the same name"
    assert all(case.get("time") == "0" for case in cases)


def test_a_failure_says_what_was_seen_and_what_to_do() -> None:
    failure = next(
        one for one in suites(samples.preflight()).iter("failure") if one.get("type") == "ib-link-or-hca-fault"
    )
    assert failure.get("message") == "port 1 of mlx5_3 is DOWN; on the other nodes it is ACTIVE"
    for part in (
        "seen: DOWN",
        "expected: ACTIVE",
        "read from: /sys/class/infiniband/mlx5_3/ports/1/state",
        "remedy: check cable",
        "ncdiag playbook run ib-link-or-hca-fault",
    ):
        assert part in (failure.text or "")


@pytest.mark.parametrize(("fail_on", "failures"), [("fail", 2), ("warn", 7)])
def test_warnings_fail_where_they_shall(fail_on: str, failures: int) -> None:
    assert int(suites(samples.preflight(), fail_on=fail_on).get("failures", "")) == failures


def test_verdicts_and_causes() -> None:
    root = suites(samples.hang(), result_of(samples.bringup(), "b.json"), Result("preflight"))
    assert [suite.get("name") for suite in root] == ["ncdiag hang-dump", "ncdiag bringup", "ncdiag preflight"]
    assert [(suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root] == [
        ("2", "2", "0"),
        ("1", "0", "0"),
        ("1", "0", "1"),
    ]
    case = root[0][1]
    assert case.get("name") == "rank-behind rank=5 node=gpu01" and "py-spy dump" in (case[0].text or "")


def test_the_comparison_is_a_property() -> None:
    text = junit.render([samples.preflight()], compare([samples.preflight(2)], [samples.preflight()], "old.json"))
    properties = {one.get("name"): one.get("value") for one in ElementTree.fromstring(text.encode()).iter("property")}
    assert properties["ncdiag.against"] == "old.json" and set(properties) == {
        "ncdiag.against",
        "ncdiag.new",
        "ncdiag.fixed",
        "ncdiag.unchanged",
        "ncdiag.not_judged",
    }


def metrics(*results: Result) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    text = prometheus.render(results)
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("ncdiag_") and family.documentation and family.type == "gauge"
        found[family.name] = {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
    return found


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def test_findings_as_gauges() -> None:
    found = metrics(samples.preflight())
    assert found["ncdiag_findings"][labels(command="preflight", status="fail")] == 2
    assert found["ncdiag_findings"][labels(command="preflight", status="ok")] == 4
    assert found["ncdiag_nodes"] == {labels(command="preflight"): 4}
    assert found["ncdiag_exit_code"] == {labels(command="preflight"): 1}
    assert (
        found["ncdiag_finding"][
            labels(
                probe="rdma-port", status="fail", cause="ib-link-or-hca-fault", node="gpu04", device="mlx5_3", rank=""
            )
        ]
        == 1
    )
    assert {status: value for ((_, _), (_, status)), value in found["ncdiag_verdict"].items()} == {
        "ok": 0,
        "skip": 0,
        "unknown": 0,
        "warn": 0,
        "fail": 1,
    }
    assert not [key for key in found["ncdiag_finding"] if ("status", "ok") in key], "what is well is only counted"


def test_ranks_stages_and_pairs() -> None:
    found = metrics(samples.hang(), result_of(samples.bringup(), "b.json"), result_of(samples.bandwidth(), "w.json"))
    assert found["ncdiag_ranks"][labels(command="hang-dump", state="waiting", stage="collective")] == 7
    assert (
        found["ncdiag_cause"][
            labels(cause="rank-behind", confidence="likely", status="fail", node="gpu01", device="", rank="5")
        ]
        == 1
    )
    assert found["ncdiag_stage_seconds"][labels(stage="load-weights")] == pytest.approx(98.4)
    assert found["ncdiag_pair_busbw_bytes_per_second"][labels(one="gpu01", other="gpu03")] == pytest.approx(21.4e9)
    assert found["ncdiag_pair_busbw_bytes_per_second"][labels(one="gpu01", other="gpu06")] == 0


def test_the_suite_has_time_and_host_and_the_failure_what_the_rank_printed() -> None:
    data = samples.bandwidth()
    data["findings"][0]["status"] = "fail"
    (suite,) = suites(result_of(data, "bandwidth.json"))
    assert (suite.get("timestamp"), suite.get("hostname")) == ("2026-02-03T04:05:06", "login1")
    (failure,) = suite.iter("failure")
    assert (failure.text or "").endswith(
        "printed by rank 5 in its log, its last lines:\ngpu06: libibverbs: no device\nRuntimeError: ncclSystemError"
    )
