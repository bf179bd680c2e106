"""What must hold for any evidence: the order of ranks does not matter, less evidence is never surer, and nothing raises."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncdiag.hang import Verdict, infer
from ncdiag.hang.verdict import KINDS as VERDICTS
from ncdiag.hang.verdict import STATES
from ncdiag.model import CONFIDENCES, Progress, RankState
from ncdiag.stages import STAGES
from tests.hang.build import PLACES, sockets, threads
from tests.hang.test_kinds import KINDS

RUN = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
_NUMBER = st.one_of(st.none(), st.integers(0, 4))
_SIZE = st.sampled_from((0, 0, 1, 70000, 1 << 30))
_ADDRESS = st.builds(
    "{}:{}".format,
    st.sampled_from(
        ("10.77.0.1", "10.77.0.2", "127.0.0.1", "*", "[::ffff:10.77.0.1]", "[fe80::1%eth0]", "172.17.0.1", "0.0.0.0")
    ),
    st.sampled_from((29500, 40001, 6379, 28028)),
)
_SOCKET = st.builds(
    "{} {} {} send={}".format,
    st.sampled_from(("LISTEN", "SYN_SENT", "ESTABLISHED", "CLOSE_WAIT")),
    _ADDRESS,
    _ADDRESS,
    st.sampled_from((0, 48, 9000)),
)
_PROGRESS = st.builds(
    Progress,
    st.sampled_from((0.0, 3.0)),
    st.sampled_from((0.0, 0.1, 3.0)),
    _SIZE,
    _SIZE,
    _SIZE,
    st.sampled_from((0, -90000, 1 << 24)),
    _SIZE,
    st.just(0),
    st.sampled_from((None, 0.0, 100.0)),
    st.sampled_from((None, True, False)),
)
_STATE = st.builds(
    RankState,
    pid=st.integers(1, 6),
    node=st.sampled_from(("node-a", "node-b")),
    role=st.sampled_from(
        ("worker", "ray-worker", "script", "engine-core", "api-server", "headless", "launcher", "unknown")
    ),
    rank=_NUMBER,
    world_size=st.sampled_from((None, 2, 4)),
    title=st.sampled_from(("", "vllm serve m --nnodes 2 --node-rank 0", "raylet --x")),
    state=st.sampled_from(("S", "R", "D", "T", "t", "Z", "gone", "")),
    wchan=st.sampled_from(("", "futex_wait_queue", "pipe_read", "fuse_x")),
    syscall=st.sampled_from(("", "futex(0x1, 0x80)", "read(3, 0x1)", "running")),
    threads=st.one_of(st.just([]), st.builds(threads, st.sampled_from(sorted(PLACES)), st.integers(1, 2))),
    sockets=st.lists(_SOCKET, max_size=4).map(lambda texts: sockets(*texts)),
    progress=st.one_of(st.none(), _PROGRESS),
    settings=st.sampled_from(
        (
            {},
            {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"},
            {"GLOO_SOCKET_IFNAME": "docker0"},
            {"VLLM_HOST_IP": "127.0.0.1"},
            {"MASTER_ADDR": "::1", "MASTER_PORT": "x"},
        )
    ),
    log_tail=st.lists(
        st.sampled_from(
            (
                "",
                "Starting to load model x",
                "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.77.0.1:29500",
                "x 3/8 [00:01<00:02",
            )
        ),
        max_size=2,
    ),
)
_STATES = st.lists(_STATE, max_size=5, unique_by=lambda state: (state.node, state.pid))
_COUNTS = st.dictionaries(st.sampled_from(("AllReduce", "Broadcast")), st.integers(0, 9), max_size=2)
_RAS = st.lists(
    st.fixed_dictionaries(
        {
            "communicators": st.lists(
                st.fixed_dictionaries(
                    {
                        "hash": st.just("0x1"),
                        "ranks": st.lists(
                            st.fixed_dictionaries(
                                {"rank": st.integers(0, 3), "pid": st.integers(1, 6), "collective_counts": _COUNTS}
                            ),
                            max_size=4,
                        ),
                        "missing_ranks": st.lists(
                            st.fixed_dictionaries(
                                {"rank": st.integers(0, 3), "host": st.just("node-a"), "pid": st.integers(1, 6)}
                            ),
                            max_size=2,
                        ),
                    }
                ),
                max_size=2,
            )
        }
    ),
    max_size=2,
)


def _shape(verdict: Verdict) -> Any:
    rows = sorted(map(str, verdict.ranks))
    return (
        verdict.kind,
        verdict.summary,
        [(cause.cause, cause.confidence, cause.where) for cause in verdict.causes],
        rows,
    )


@RUN
@given(_STATES, _RAS)
def test_never_raises_and_always_says_something(states: list[RankState], ras: list[dict[str, Any]]) -> None:
    verdict = infer(states, ras=ras)
    assert verdict.causes and verdict.summary and verdict.kind in VERDICTS
    assert {row.state for row in verdict.ranks} <= set(STATES)
    assert {row.stage for row in verdict.ranks} <= {stage.name for stage in STAGES}
    json.dumps(verdict.as_dict())


@RUN
@given(_STATES, st.randoms(use_true_random=False))
def test_the_order_of_ranks_does_not_matter(states: list[RankState], shuffle: random.Random) -> None:
    mixed = list(states)
    shuffle.shuffle(mixed)
    assert _shape(infer(states)) == _shape(infer(mixed))


_EMPTY: dict[str, Any] = {
    "sockets": [],
    "progress": None,
    "threads": [],
    "log_tail": [],
    "settings": {},
    "wchan": "",
    "syscall": "",
    "title": "",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", _EMPTY)
def test_less_evidence_is_never_surer(kind: str, field: str) -> None:
    states = KINDS[kind][0]()
    full = infer(states).causes[0]
    bare = infer([dataclasses.replace(state, **{field: _EMPTY[field]}) for state in states]).causes[0]
    assert CONFIDENCES.index(bare.confidence) <= CONFIDENCES.index(full.confidence), bare.summary


@RUN
@given(_STATES, st.sampled_from(sorted(_EMPTY)))
def test_nothing_is_sure_without_what_it_rests_on(states: list[RankState], field: str) -> None:
    bare = [dataclasses.replace(state, **{field: _EMPTY[field]}, state="S", frozen=None) for state in states]
    for cause in infer(bare).causes:
        if field == "sockets":
            assert cause.confidence != "sure"
        if field == "threads" and cause.cause in ("rank-stuck-outside-collective", "collective-desync"):
            assert cause.confidence != "sure"


def test_ranks_that_move_are_not_accused() -> None:
    busy = Progress(3.0, cpu_s=2.0, read_bytes=1 << 28, rss_bytes=1 << 26, page_faults=9000, frames_changed=True)
    for place in PLACES:
        states = [
            RankState(number + 1, "gpu-a", "worker", number, 4, state="R", threads=threads(place), progress=busy)
            for number in range(4)
        ]
        verdict = infer(states)
        assert verdict.causes[0].confidence == "possible" or verdict.causes[0].cause in ("healthy", "slow-not-hung"), (
            place
        )
