"""What a look at all nodes leads to: places of causes, who ended first, and honesty about nodes that were not seen."""

from __future__ import annotations

from typing import Any

from ncdiag.bringup.output import Output
from ncdiag.bringup.timeline import Timeline
from ncdiag.bringup.verdicts import complete, failure, states_of
from ncdiag.hang.scene import look
from ncdiag.hang.verdict import RankVerdict, Verdict
from ncdiag.model import Cause, RankState, Socket


def worker(
    node: str,
    rank: int,
    *,
    letter: str = "S",
    sockets: list[Socket] | None = None,
    settings: dict[str, str] | None = None,
) -> RankState:
    return RankState(
        100 + rank,
        node,
        "worker",
        rank=rank,
        world_size=2,
        state=letter,
        sockets=sockets or [],
        settings=settings or {},
    )


def answer(
    node: str, *states: RankState, logs: dict[str, list[str]] | None = None, error: str | None = None
) -> dict[str, Any]:
    return {
        "node": node,
        "states": [state.as_dict() for state in states],
        "logs": logs or {},
        **({"error": error} if error else {}),
    }


def missing(answers: list[dict[str, Any]], nodes: int = 2) -> tuple[Cause, Verdict]:
    cause = Cause("rank-missing", "likely", "rank 1 never came", {"rank": 1})
    verdict = Verdict("hang", "", [cause], [RankVerdict("a", 100, "worker", 0, "waiting", "rendezvous")])
    complete(cause, verdict, answers, nodes)
    return cause, verdict


def test_a_rank_is_missing_where_a_node_was_looked_at_and_has_nothing() -> None:
    cause, _ = missing([answer("a", worker("a", 0)), answer("b")])
    assert (cause.confidence, cause.where) == ("likely", {"rank": 1, "stage": "rendezvous", "node": "b"})


def test_a_rank_on_a_node_that_was_not_looked_at_is_only_possibly_missing() -> None:
    cause, _ = missing([answer("a", worker("a", 0)), answer("b", error="Connection refused")])
    assert (
        cause.confidence == "possible" and "node" not in cause.where and "Connection refused" in cause.evidence[0].text
    )
    cause, verdict = missing([answer("a", worker("a", 0))])
    assert cause.confidence == "possible" and "--nodes ssh:" in verdict.next[0]


def test_a_process_that_two_ways_lead_to_is_one() -> None:
    assert len(states_of([answer("a", worker("a", 0)), answer("a", worker("a", 0)), answer("b", worker("b", 1))])) == 2


def ended(ends: dict[tuple[str, int], float], *states: RankState) -> Timeline:
    timeline = Timeline()
    timeline.see(
        1.0, [look(RankState(state.pid, state.node, state.role, rank=state.rank, state="S")) for state in states]
    )
    timeline.see(9.0, [look(state) for state in states], ends)
    return timeline


def test_without_an_error_in_any_log_the_rank_that_ended_first_is_named() -> None:
    states = [worker("a", 0, letter="gone"), worker("b", 1, letter="gone")]
    timeline = ended({("a", 100): 8.9, ("b", 101): 8.2}, *states)
    (cause, *_) = failure([answer("a", states[0]), answer("b", states[1])], states, Output(), timeline, 1, {})
    assert (cause.cause, cause.where["node"], cause.where["rank"]) == ("rank-died", "b", 1)
    (cause, *_) = failure([answer("a", states[0]), answer("b", states[1])], states, Output(), timeline, 1, {"b": 1})
    assert cause.cause == "host-memory-oom"


def test_a_rank_that_has_ended_is_not_called_late() -> None:
    """The others' log shows only that they are further: weights loaded here, not there."""
    output = Output()
    output.feed(
        False,
        b"(Worker_TP1 pid=101) INFO 01-02 10:00:04 [gpu_model_runner.py:68] Starting to load model /models/m...\n"
        b"(Worker_TP0 pid=100) INFO 01-02 10:00:04 [gpu_model_runner.py:68] Starting to load model /models/m...\n"
        b"(Worker_TP0 pid=100) INFO 01-02 10:00:04 [default_loader.py:501] Loading weights took 0.05 seconds\n",
    )
    states = [worker("a", 0, letter="gone"), worker("a", 1, letter="gone")]
    answers = [answer("a", *states)]
    (cause, *rest) = failure(answers, states, output, ended({("a", 100): 8.9, ("a", 101): 3.2}, *states), 1, {})
    assert (cause.cause, cause.where["rank"]) == ("rank-died", 1)
    assert "slow-load-peer-timeout" not in {other.cause for other in rest}
    (cause, *_) = failure(answers, states, output, ended({}, *states), 1, {})
    assert (cause.cause, cause.confidence) == ("slow-load-peer-timeout", "possible")


def test_ends_that_only_looks_tell_are_not_put_into_an_order() -> None:
    states = [worker("a", 0, letter="gone"), worker("b", 1, letter="gone")]
    (cause, *_) = failure([answer("a", states[0]), answer("b", states[1])], states, Output(), ended({}, *states), 1, {})
    assert cause.cause == "unresolved"


def test_an_error_of_another_node_is_placed_there_and_comes_before_its_consequence() -> None:
    output = Output()
    output.feed(True, b"RuntimeError: Connection closed by peer [192.0.2.2]:4711\n")
    error = [
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'",
        "RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 64 MiB free.",
    ]
    answers = [answer("a", worker("a", 0)), answer("b", logs={"/var/log/b.log": error})]
    (cause, *_) = failure(answers, [], output, Timeline(), 1, {})
    assert (cause.cause, cause.where["node"]) == ("shm-too-small", "b")


def test_an_address_that_cannot_be_reached_leads_to_the_rank_that_listens_there() -> None:
    output = Output()
    output.feed(
        True,
        b"ERROR failed to connect, willRetry=0, retry=4, retryLimit=3, rank=0, size=2, local=[192.0.2.1]:4242, remote=[198.51.100.9]:15842$1, error=SO_ERROR: No route to host\n",
    )
    there = worker(
        "b",
        1,
        sockets=[Socket("LISTEN", "198.51.100.9:4711"), Socket("CLOSE_WAIT", "192.0.2.2:5000", "192.0.2.1:29500")],
        settings={"GLOO_SOCKET_IFNAME": "mgmt0"},
    )
    (cause, *_) = failure([answer("a"), answer("b", there)], [there], output, Timeline(), 1, {})
    assert (cause.cause, cause.where["node"], cause.where["rank"]) == ("socket-ifname-wrong", "b", 1)
    assert any("GLOO_SOCKET_IFNAME=mgmt0" in item.text for item in cause.evidence)


def test_a_peer_that_closed_its_connection_is_where_its_address_is_not_where_the_line_stands() -> None:
    output = Output()
    output.feed(
        True,
        b"(Worker_TP0 pid=100) RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [192.0.2.2]:56449\n",
    )
    here = worker("a", 0, sockets=[Socket("ESTABLISHED", "192.0.2.1:29500", "192.0.2.2:5000")])
    there = worker("b", 1, sockets=[Socket("ESTABLISHED", "192.0.2.2:5000", "192.0.2.1:29500")])
    (cause, *_) = failure([answer("a", here), answer("b")], [here, there], output, ended({}, here, there), 1, {})
    assert (cause.cause, cause.where["node"], cause.where["rank"]) == ("rank-died", "b", 1)
    third = worker("b", 2, sockets=[Socket("ESTABLISHED", "192.0.2.2:5001", "192.0.2.1:29500")])
    (cause, *_) = failure([answer("a", here), answer("b")], [here, there, third], output, Timeline(), 1, {})
    assert cause.where["node"] == "b" and "rank" not in cause.where
