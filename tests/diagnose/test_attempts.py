"""Several attempts in one log: the last one counts, unless it met what the first left behind."""

from __future__ import annotations

import pytest

from tests.diagnose.test_variants import causes_of

BEGINS = "INFO 11-16 11:02:58 [api_server.py:1395] vLLM API server version 0.9.2\n"
TAKEN = """Traceback (most recent call last):
  File "/opt/v/lib/python3.11/site-packages/vllm/entrypoints/openai/api_server.py", line 1341, in create_server_socket
    sock.bind(addr)
OSError: [Errno 98] Address already in use
"""
TOO_LONG = """ERROR 11-16 11:12:37 [core.py:586] EngineCore failed to start.
ERROR 11-16 11:12:37 [core.py:586] ValueError: To serve at least one request with the models's max seq len (131072), (20.00 GiB KV cache is needed, which is larger than the available KV cache memory (8.77 GiB).
"""


@pytest.mark.parametrize(
    "attempts, first, sure",
    [
        ((TAKEN, TOO_LONG), "max-len-exceeds-kv-cache", {"max-len-exceeds-kv-cache"}),
        ((TAKEN,), "port-in-use", {"port-in-use"}),
        ((TOO_LONG, TAKEN), "max-len-exceeds-kv-cache", {"max-len-exceeds-kv-cache"}),
    ],
    ids=["another reason", "one attempt", "what the first left behind"],
)
def test_the_last_attempt_with_a_reason_of_its_own(attempts: tuple[str, ...], first: str, sure: set[str]) -> None:
    causes = causes_of({"a": "".join(BEGINS + text for text in attempts)})
    assert causes[0].cause == first, causes[0].summary
    assert {cause.cause for cause in causes if cause.confidence == "sure"} <= sure


def test_servers_of_one_engine_are_no_attempts() -> None:
    """Each says that it begins; what the engine meets is one attempt's."""
    causes = causes_of({"a": BEGINS + BEGINS + TOO_LONG})
    assert (causes[0].cause, causes[0].confidence) == ("max-len-exceeds-kv-cache", "sure")


FULL = "{day} {hour:02}:20:01,100 ERROR OSError: [Errno 28] No space left on device: '/ckpt/step-20.pt'\n"
CRASH = "{day} {hour:02}:25:01,100 ERROR Fatal Python error: Segmentation fault\n"
RAISED = 'Traceback (most recent call last):\n  File "/app/train.py", line 20, in main\n    run()\nValueError: batch 7 is odd\n'


def attempt(hour: int, text: str, day: str = "2026-03-02") -> str:
    begin = "{day} {hour:02}:10:01,100 INFO [train.py:10] the attempt begins\n"
    return (begin + text).format(day=day, hour=hour)


@pytest.mark.parametrize(
    ("text", "cause"), [(CRASH, "rank-died"), (RAISED, "engine-exception")], ids=["stamped", "not"]
)
def test_another_attempt_hours_later_follows_from_nothing_in_the_first(text: str, cause: str) -> None:
    for hour, apart in ((8, False), (13, True), (14, True)):
        causes = causes_of({"old": attempt(8, FULL), "new": attempt(hour, text)})
        assert causes[0].cause == "disk-full"
        assert (cause in [one.cause for one in causes]) is apart
    earlier = causes_of({"old": attempt(8, FULL), "older": attempt(8, text, "2026-03-01")})
    assert cause in [one.cause for one in earlier]


def test_a_clock_without_a_date_and_that_of_a_kernel_tell_no_attempts() -> None:
    undated = attempt(14, CRASH).replace("2026-03-02 ", "")
    assert [one.cause for one in causes_of({"old": attempt(8, FULL), "new": undated})] == ["disk-full"]
    kernel = (
        "Mar  2 08:20:01 gpu07 kernel: Memory cgroup out of memory: Killed process 4018 (python3) total-vm:7139kB\n"
    )
    assert [one.cause for one in causes_of({"dmesg": kernel, "new": attempt(16, CRASH)})] == ["host-memory-oom"]
