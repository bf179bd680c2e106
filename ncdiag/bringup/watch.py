"""The watch: looks at all nodes again and again, says where the start stands, and concludes when it stands still, ends or is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncdiag.bringup import no_engine, ray_ends, ready, verdicts
from ncdiag.bringup.agents import Eyes
from ncdiag.bringup.command import Engine
from ncdiag.bringup.limit import Limit
from ncdiag.bringup.output import Output
from ncdiag.bringup.places import place
from ncdiag.bringup.result import LogsOnly, Process, Result, Voice
from ncdiag.bringup.seen import Seen, ends
from ncdiag.bringup.stall import Picture, Stall, is_missed, key, signature
from ncdiag.bringup.summary import summarise
from ncdiag.bringup.timeline import Timeline
from ncdiag.hang.claims import names
from ncdiag.hang.scene import View
from ncdiag.hang.settled import settled
from ncdiag.hang.verdict import Verdict
from ncdiag.model import Cause, RankState

PERIOD_S, LOAD = 2.0, 5.0
"""Seconds between looks; at least LOAD times what a look costs, so that the watch stays a small part of the work."""
SERVING_S = 15.0
"""The same when it is up: what serves is hardly disturbed."""
MIN_STALL_S = 1.0


class Watch:
    def __init__(
        self,
        process: Process,
        eyes: Eyes,
        output: Output,
        engine: Engine,
        voice: Voice,
        *,
        stall_after_s: float,
        stop_on_stall: bool = False,
        timeout_s: float | None = None,
        by_ranks: bool = False,
        by_health: bool = False,
        extra: Callable[[Sequence[RankState]], Mapping[str, Any]] = lambda states: {},
    ) -> None:
        self.process, self.eyes, self.output, self.engine, self.voice = process, eyes, output, engine, voice
        self.started = time.monotonic()
        self.stall = Stall(max(stall_after_s, MIN_STALL_S), self.started)
        self.timeline = Timeline()
        self.states: list[RankState] = []
        self.errors: list[str] = []
        self.answers: list[Mapping[str, Any]] = []
        self.stalls: list[dict[str, Any]] = []
        self.verdict: Verdict | None = None
        self.stopping = False
        """Set from outside (a signal): the watch ends at the next chance."""
        self._seen = Seen()
        self._said: tuple[object, ...] | None = None
        self._rest, self._computes = "", False
        self._left = self._exit_seen = self.was_up = False
        self._halted: set[object] = set()
        self._asker: ready.Asker | None = None
        self._by_ranks, self._by_health = engine.headless or by_ranks, by_health
        self._extra, self._stop_on_stall, self.limit = extra, stop_on_stall, Limit(timeout_s)

    @property
    def at_s(self) -> float:
        return time.monotonic() - self.started

    def until_ready(self) -> Result:
        """Until it is up, ended, or has to be given up."""
        try:
            while True:
                picture = self._look()
                if self.stopping:
                    return self._result("interrupted")
                if ended := self._ended():
                    return ended
                if self._up():
                    return self._came_up()
                if self._concludes(picture) and self._stop_on_stall:
                    return self._result("stalled", self.verdict.causes if self.verdict else [])
                self._pause()
                if self.limit.over:
                    return self._timed_out(picture)
        finally:
            if self._asker is not None:
                self._asker.close()

    def until_end(self) -> Result:
        """After it came up: until it ends; a stall while it serves is said as before."""
        self.limit.lift()
        while True:
            picture = self._look()
            if self.stopping:
                return self._result("interrupted")
            if ended := self._ended():
                return ended
            if self._concludes(picture) and self._stop_on_stall:
                return self._result("stalled", self.verdict.causes if self.verdict else [])
            self._pause(serving=True)

    def _pause(self, serving: bool = False) -> None:
        usual_s = SERVING_S if serving else max(PERIOD_S, LOAD * self.eyes.cost_s)
        period_s = PERIOD_S / 2 if self.stall.suspects else usual_s
        until = time.monotonic() + min(period_s, self.limit.left_s)
        while (
            time.monotonic() < until
            and not self.stopping
            and not self.process.over
            and (self.process.exit is None or self._left)
            and (serving or not self._up())
        ):
            time.sleep(0.05)

    def _look(self) -> Picture:
        self.answers = self._ask(full=False)
        self.errors = verdicts.errors_of(self.answers)
        self.states = verdicts.states_of(self.answers)
        self._extra(self.states)  # a server that was seen for the first time can be asked at once
        self._seen.look(self.answers, self.states, bool(self.process.exit))
        self.output.lend(self.states)
        now = time.monotonic()
        picture = self.stall.see(now, self.states, now if no_engine.moves(self.answers) else self.output.news_at)
        self.timeline.see(self.at_s, picture.views, ends(self.answers, self.at_s))
        self.voice.show(self.at_s, picture, self.timeline, self.errors)
        self._tell_of_computing(picture)
        return picture

    def _tell_of_computing(self, picture: Picture) -> None:
        """Said once, for as long as it is so."""
        long = self.stall.computes_long(picture)
        if long and not self._computes:
            self.voice.computes(self.at_s, picture)
            self.timeline.event(self.at_s, "computes", summary=names(picture.computing))
        self._computes = long

    def _ask(self, full: bool) -> list[Mapping[str, Any]]:
        return list(self.eyes.look(full, {**self._extra(self.states), **self.limit.of_look(full)}))

    def _up(self) -> bool:
        """Whether there is a result of the request, or, without a server to ask, whether all ranks are ready."""
        if self.engine.serves and not self.engine.headless:
            if self._asker is None:
                name = self.engine.served_name or self.engine.model
                self._asker = ready.Asker(self.engine.url, self.engine.api_key, name, by_health=self._by_health)
            return self._asker.check.done
        if isinstance(self.process, LogsOnly):
            return any(answer.get("concluded") == "ready" for answer in self.answers)
        return self._by_ranks and self._all_ready()

    def _all_ready(self) -> bool:
        """Whether all ranks wait for work, and the engine core, where one is seen, does too."""
        rows = [row for row in self.timeline.rows if row.ended_s is None and row.spans]
        cores = [row for row in rows if row.role == "engine-core"]
        ranks = [row for row in rows if row.rank is not None]
        return (
            bool(ranks)
            and all(row.spans[-1][0] in ("ready", "ray-actor") for row in ranks)
            and all(row.spans[-1][0] == "ready" for row in cores)
        )

    def _ended(self) -> Result | None:
        if any(answer.get("concluded") == "failed" for answer in self.answers):
            return self._result("failed", self._failure(self.answers))
        if self.process.exit is None and not self.process.over:
            return None
        if self.process.exit == 0 and not self.process.over:
            here = any(state.state != "gone" for state in self.states)
            self._left = self._left or (
                self._exit_seen and here
            )  # a script that has left its engine behind: that is watched now
            if here or not self._exit_seen:
                self._exit_seen = True
                return None
        attached_and_silent = self.process.exit is None and not verdicts.logs_of(self.answers, self.output)
        if (self.process.exit == 0 and not self._left) or attached_and_silent:
            return self._result("finished" if self._was_job() or self.was_up else "ended")
        self._look()
        causes = self._failure(self.answers)
        if self.process.exit is None and all(cause.cause in ("rank-died", "unresolved") for cause in causes):
            return self._result("ended")  # attached to: that it is gone does not say that it failed
        return self._result("failed", causes)

    def _was_job(self) -> bool:
        """Whether what ended well was a job of ranks, which comes to its end; a server that ends has not come up."""
        return not self.engine.serves and any(row.rank is not None for row in self.timeline.rows)

    def _failure(self, answers: Sequence[Mapping[str, Any]]) -> list[Cause]:
        seen, code = self._seen, self.process.exit
        causes = verdicts.failure(answers, seen.states, self.output, self.timeline, code, seen.oom)
        return [seen.earlier, *causes] if seen.earlier is not None else causes

    def _came_up(self) -> Result:
        check = self._asker.check if self._asker is not None else None
        if check is not None and check.error:
            answers = self._ask(full=True)
            self._conclude(answers)
            causes = self._failure(answers)
            if self.verdict is not None and self.verdict.kind in ("hang", "failed"):
                causes = self.verdict.causes
            return self._result("failed", causes)
        picture = self._look()
        if any(is_missed(view) for view in picture.views) or any(
            answer.get("lost") == "now" for answer in self.answers
        ):
            return self._broke()
        self.was_up = True
        result = self._result("ready")
        result.summary = summarise(verdicts.logs_of(self.answers, self.output), self.states, self.engine)
        return result

    def _broke(self) -> Result:
        """It answered, and meanwhile a part of it ended."""
        answers = self._ask(full=True)
        self._conclude(answers)
        return self._result("failed", self.verdict.causes if self.verdict else self._failure(answers))

    def _concludes(self, picture: Picture) -> bool:
        """Whether it stands still; if so, why, said once for each picture."""
        now = time.monotonic()
        if self._said is not None and picture.moved and not self.stall.halted:
            self.voice.moves_again(self.at_s, self.stalls[-1]["quiet_s"])
            self.timeline.event(self.at_s, "moves again")
            self._said = None
        if self._idle(picture):
            self.stall.moved_at = now
            return False
        news = set(self.stall.halted) - self._halted
        if not self.stall.due(now) and not (news and len(self.stall.halted) < len(picture.views)):
            return False
        self._halted |= news
        quiet_s = picture.quiet_s
        self._conclude(self._ask(full=True), quiet_s, [view for view in picture.views if key(view.state) in news])
        return self._said is not None

    def _idle(self, picture: Picture) -> bool:
        """Everything is up and waits for work: that is not a stall."""
        waits = self._asker is not None and self._asker.check.asked and not self._asker.check.done
        return (
            not waits
            and not self.stall.halted
            and bool(picture.views)
            and all(view.stage in ("ready", "ray-actor") for view in picture.views)
            and (self._asker is None or self._asker.check.done)
        )

    def _conclude(
        self, answers: Sequence[Mapping[str, Any]], quiet_s: float = 0.0, halted: Sequence[View] = ()
    ) -> None:
        """`halted`: processes that have just ended or been stopped, for which it is said before the others stand still."""
        self.errors = verdicts.errors_of(answers)
        content = verdicts.content_of(
            answers, self.output, {"node": answers[0]["node"] if answers else None, "command": "bringup"}
        )
        for state in content.states:
            state.still_s = max(state.still_s or 0.0, quiet_s)
        verdict = content.verdict() if content.states else no_engine.verdict(answers)
        known, lost = self._seen.earlier, ray_ends.lost_node(answers)
        if lost is not None and (lost.confidence != "possible" or verdict.kind == "unknown"):
            known = known or lost
        if verdict.kind == "failed":  # all ranks have ended, and the command will
            verdict.causes = self._failure(answers)
        elif known is not None:
            verdict.causes = settled([known, *verdict.causes], verdict.causes)
        verdict.summary = verdict.causes[0].summary if verdict.causes else verdict.summary
        cause = verdict.cause
        if cause is not None:
            verdicts.complete(cause, verdict, answers, self.engine.nodes)
        for found in verdict.causes:
            place(found, self.timeline, answers, content.logs)
        mark = signature(
            verdict.kind,
            cause.cause if cause else "",
            cause.where if cause else {},
            [row.name for row in verdict.culprits],
        )
        self.verdict = verdict
        if verdict.kind in ("progressing", "healthy") and self._said is None:
            self.timeline.event(self.at_s, "slow", summary=verdict.summary)
            self.stall.moved_at = time.monotonic() if verdict.kind == "progressing" else self.stall.moved_at
            if verdict.kind == "healthy" and quiet_s and verdict.summary != self._rest:
                self.voice.rests(self.at_s, quiet_s, verdict.summary)
                self._rest = verdict.summary
            return
        if mark == self._said:
            return
        self._said = mark
        self.stalls.append(
            {
                "at_s": round(self.at_s, 2),
                "quiet_s": round(quiet_s, 1),
                "verdict": verdict.kind,
                "cause": cause.cause if cause else None,
            }
        )
        self.timeline.event(self.at_s, "stall", cause=cause.cause if cause else None, summary=verdict.summary)
        self.voice.stalled(self.at_s, quiet_s, verdict, content, halted)

    def _timed_out(self, picture: Picture) -> Result:
        self._said = None
        self._conclude(self._ask(full=True), picture.quiet_s)
        return self._result("timeout", self.verdict.causes if self.verdict else [])

    def _result(self, outcome: str, causes: Sequence[Cause] = ()) -> Result:
        self.timeline.event(self.at_s, outcome)
        check = self._asker.check if self._asker is not None else None
        result = Result(
            outcome,
            round(self.at_s, 2),
            self.timeline,
            check,
            None,
            list(causes),
            self.verdict,
            self.stalls,
            self.errors,
        )
        result.started_at = time.time() - self.at_s
        result.status = self.process.exit
        return result
