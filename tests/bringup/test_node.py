"""Who has ended on a node: ranks, also those that ended between two reads, and no short-lived helper."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncdiag.bringup import no_engine
from ncdiag.bringup.node import Node
from ncdiag.model import RankState


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def spawned(pid: int, **more: object) -> RankState:
    """A child of multiprocessing that has not said yet what it is."""
    return RankState(pid, "n", "worker", rank=0, rank_source="order", title="python -c spawn_main", **more)  # type: ignore[arg-type]


def test_what_was_seen_once_and_never_said_what_it_is_was_no_rank() -> None:
    node = Node()
    node._ended([spawned(ended_process())])
    assert node._ended([]) == []


@pytest.mark.parametrize(
    "more", [{"log_tail": ["(Worker pid=1) Starting to load model"]}, {"rank_source": "environment"}]
)
def test_a_rank_that_said_so_is_remembered(more: dict[str, object]) -> None:
    node, state = Node(), spawned(ended_process())
    vars(state).update(more)
    node._ended([state])
    assert [found.state for found in node._ended([])] == ["gone"]


def test_so_is_what_was_there_for_several_looks() -> None:
    node, state = Node(), spawned(ended_process())
    node._ended([state])
    node._ended([state])
    assert [found.pid for found in node._ended([])] == [state.pid]


def test_a_process_that_is_missed_once_is_looked_for_again() -> None:
    node = Node()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    state = spawned(process.pid, log_tail=["(Worker pid=1) x"])
    node._ended([state])
    assert node._ended([]) == []
    process.kill()
    process.wait()
    assert [found.state for found in node._ended([])] == ["gone"]


def test_a_ray_worker_that_imports_before_it_has_a_name_is_told_with_its_progress(tmp_path: Path) -> None:
    """It shows as `ray::IDLE`, and the name of its log tells its job."""
    log = tmp_path / "worker-0123456789abcdef-02000000-77.err"
    busy = "while True: sum(range(1000))"
    with open(log, "wb") as err:
        argv = ["ray::IDLE", "-c", busy]
        process = subprocess.Popen(argv, executable=sys.executable, stderr=err)
    try:
        node = Node()
        node.look({"ray": True, "job": "02000000"})
        time.sleep(1.0)
        again = Node()
        again.remember(node.memory())
        (told,) = again.look({"ray": True, "job": "02000000"})["others"]
        assert told["pid"] == process.pid and no_engine.moves([{"others": [told]}])
        assert again.look({"ray": True, "job": "03000000"})["others"] == []
    finally:
        process.kill()
        process.wait()
