"""A log that ends while the same is tried again and again is of no job that is well; one that went on after it is."""

from __future__ import annotations

import pytest

from tests.diagnose.test_how_far import COMPLETE, READY, START, STEPS
from tests.diagnose.test_variants import causes_of

TRIES = {
    "a store": ("[W302 10:0{}:11.1 acme_store.cpp:75] connecting to the store at node0:29500 failed, retrying", "bootstrap-peer-unreachable"),
    "a rank": ("Waiting for rank 3 to join ... ({} s)", "rank-missing"),
    "heartbeats": ("2026-03-02 10:1{}:00,123 WARNING heartbeat of worker 3 missed", "rank-died"),
    "a health check": ("WARNING 03-02 10:1{}:00 [acme.py:7] health check failed: no answer", "rank-stuck-outside-collective"),
    "a server's health": ('INFO:     192.0.2.50:4{} - "GET /health HTTP/1.1" 503 Service Unavailable', "rank-stuck-outside-collective"),
    "a checkpoint": ("the upload of the checkpoint did not end, attempt {} of 20", "storage-slow"),
    "a lock": ("waiting on lock /tmp/ext/lock for {}0 s", "rank-stuck-outside-collective"),
    "Ray's head": ("[2026-03-02 10:1{}:00,100 W 7 7] acme_client.h:151: reconnecting to GCS", "ray-gcs-unreachable"),
}  # fmt: skip
WELL = {"steps": STEPS, "a server": READY, "NCCL": [*START, *COMPLETE]}


def tries(text: str, times: int = 6) -> list[str]:
    return [text.format(number) for number in range(1, times + 1)]


def first(*lines: str, **others: list[str]) -> tuple[str, list[str]]:
    files = {"job.log": list(lines), **others}
    causes = causes_of({name: "\n".join(lines) + "\n" for name, lines in files.items()})
    return causes[0].cause, [cause.cause for cause in causes]


@pytest.mark.parametrize("well", WELL.values(), ids=WELL)
@pytest.mark.parametrize(("text", "fits"), TRIES.values(), ids=TRIES)
def test_ends_with_tries(text: str, fits: str, well: list[str]) -> None:
    cause, causes = first(*well, *tries(text))
    assert (cause, causes[1]) == ("unresolved", fits)
    assert "healthy" not in causes


def test_another_source_ends_with_tries() -> None:
    assert first(*STEPS, **{"agent.log": tries(TRIES["a rank"][0])})[0] == "unresolved"


@pytest.mark.parametrize(("text", "fits"), TRIES.values(), ids=TRIES)
def test_went_on_after_them(text: str, fits: str) -> None:
    """Steps follow, or stand between them: somebody else tries, and the job works."""
    mixed = [line for pair in zip(tries(text, 8), STEPS, strict=True) for line in pair]
    assert first(*tries(text), *STEPS)[0] == "healthy"
    assert first(*mixed)[0] == "healthy"


def test_a_few_are_none() -> None:
    text = TRIES["a rank"][0]
    assert first(*STEPS, *tries(text, 2))[0] == "healthy"
    assert first(*STEPS, *tries(text), "rank 3 is here", "all ranks are here", "the pool is open")[0] == "healthy"


@pytest.mark.parametrize(
    "text",
    [
        "[rank{}]: waiting for all ranks to load",
        "(Worker_TP{0} pid=70{0}) attempting to map its weights",
        "rank {} is waiting for the others",
        "2026-03-02 10:11:00,12{} INFO waiting for the others",
    ],
    ids=["labels", "processes", "numbers", "at once"],
)
def test_what_every_rank_says_once_is_no_try(text: str) -> None:
    assert first(*START, *COMPLETE, *tries(text, 8))[0] == "healthy"


def test_what_a_rule_knows_is_told_by_the_rule() -> None:
    refused = "[W302 10:0{}:11.1 socket.cpp:759] [c10d] The client socket has failed to connect to [gpu02]:29500 (errno: 111 - Connection refused)."
    causes = causes_of({"a": "\n".join([*START, *COMPLETE, *tries(refused)]) + "\n"})
    assert causes[0].cause == "unresolved" and "gpu02" in causes[0].summary
