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
