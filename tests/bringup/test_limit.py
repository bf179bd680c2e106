"""A time limit is kept: looks get shorter towards it, and a node that does not answer does not stretch it."""

from __future__ import annotations

import sys
import time

from ncdiag.bringup.agents import LOADER, Agent, Eyes
from ncdiag.bringup.limit import ANSWER_S, LAST_S, Limit


def test_without_a_limit_looks_take_their_time() -> None:
    assert Limit(None).of_look(True) == {"answer_s": ANSWER_S, "short": False}


def test_a_full_look_at_the_end_is_short() -> None:
    told = Limit(0.0).of_look(True)
    assert told == {"answer_s": LAST_S, "short": True}
    assert not Limit(600.0).of_look(True)["short"]


def test_what_is_up_has_no_limit_any_more() -> None:
    limit = Limit(0.0)
    assert limit.over
    limit.lift()
    assert not limit.over


def test_a_node_that_does_not_answer_is_left_after_the_time_that_is_left() -> None:
    silent = Agent("n", [sys.executable, "-c", "import time; time.sleep(60)", LOADER[:1]], {})
    eyes = Eyes([silent])
    try:
        started = time.monotonic()
        (answer,) = eyes.look(True, {"answer_s": 1.0})
        assert answer["error"] == "no answer within 1 s" and time.monotonic() - started < 5
    finally:
        silent._process.kill()
        eyes.close()
