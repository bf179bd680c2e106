"""Where a cause is: node and rank that it names fit together, and nothing is said that the lines do not carry."""

from __future__ import annotations

import pytest

from ncdiag.bringup.output import NAME
from ncdiag.bringup.places import place
from ncdiag.bringup.timeline import Row, Timeline
from ncdiag.model import Cause, Evidence

ANSWERS = [{"node": "a"}, {"node": "b", "address": "192.0.2.2"}]


@pytest.fixture
def timeline() -> Timeline:
    made = Timeline()
    for node, pid, rank in (("a", 10, 0), ("b", 20, 1), ("a", 30, None), ("b", 30, None)):
        made._rows[node, pid] = Row(node, pid, "worker", rank, [("mesh", 0.0, 1.0)])
    return made


def placed(timeline: Timeline, cause: Cause, logs: dict[str, list[str]] | None = None) -> dict[str, object]:
    place(cause, timeline, ANSWERS, logs or {})
    return cause.where


def cause(where: dict[str, object], *evidence: Evidence) -> Cause:
    return Cause("engine-exception", "likely", "", dict(where), list(evidence))


def test_a_rank_that_is_named_brings_its_node_not_that_of_the_command(timeline: Timeline) -> None:
    assert placed(timeline, cause({"rank": 1}, Evidence(NAME, "rank=1: timed out"))) == {"rank": 1, "node": "b"}


def test_a_line_of_a_process_places_it(timeline: Timeline) -> None:
    found = placed(timeline, cause({}, Evidence("b:/var/log/x", "(Worker pid=20) boom")))
    assert found == {"node": "b", "rank": 1, "stage": "mesh"}


def test_a_later_line_of_another_node_does_not_add_its_rank(timeline: Timeline) -> None:
    found = placed(timeline, cause({}, Evidence(NAME, "boom"), Evidence("b:/var/log/x", "(Worker pid=20) lost")))
    assert found == {"node": "a"}


def test_a_number_that_two_nodes_have_is_told_by_the_log_it_stands_in(timeline: Timeline) -> None:
    assert placed(timeline, cause({}, Evidence("b:/x", "(EngineCore pid=30) boom")))["node"] == "b"
    assert "stage" not in placed(timeline, cause({}, Evidence("x", "(EngineCore pid=30) boom")))


def test_an_error_that_ray_brought_from_another_node_is_there(timeline: Timeline) -> None:
    header = "(EngineCore pid=30) ERROR ray.exceptions.RayTaskError(RuntimeError): \x1b[36mray::RayWorkerProc.f()\x1b[39m (pid=7, ip={}, actor_id=1)"
    lines = [
        "(EngineCore pid=30) ERROR Traceback",
        header.format("192.0.2.2"),
        "(EngineCore pid=30) ERROR RuntimeError: boom",
    ]
    boom = Evidence(NAME, lines[2], 3)
    assert placed(timeline, cause({"pid": 30}, boom), {NAME: lines}) == {"node": "b"}
    lines[1] = header.format("192.0.2.9")
    assert placed(timeline, cause({}, boom), {NAME: lines}) == {"node": "192.0.2.9"}
