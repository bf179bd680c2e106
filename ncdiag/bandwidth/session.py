"""Agents on nodes, and jobs on them: starts, follows, gives up in time, and lets go of everything at the end."""

from __future__ import annotations

import base64
import json
import select
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncdiag.bandwidth.job import Job, Outcome, Place, RankOutcome
from ncdiag.bandwidth.limit import LAST_WORDS_S, Limit
from ncdiag.bandwidth.node.words import MARK
from ncdiag.bandwidth.reach import Line, Way
from ncdiag.fleet.sessions import Sessions

HELLO_S = 90.0
"""Torch takes its time to load."""
BEAT_S = 15.0
GRACE_S = 10.0
"""What a job may take beyond its limit before its agents are thought to be gone."""
STEPS = ("store", "stage", "row", "self", "done")
"""What a rank says when it has got further."""
LETTING_GO_S = 3.0
"""How long agents may take to end by themselves."""


@dataclass
class Agent:
    node: str
    line: Line | None = None
    facts: dict[str, Any] | None = None
    error: str = ""
    """Why it does not answer."""
    partial: bytes = b""

    @property
    def alive(self) -> bool:
        return self.line is not None


class Session:
    """`with Session(ways) as session:` — everything that was started ends with it."""

    def __init__(
        self, ways: Sequence[Way], progress: Callable[[str], None] = lambda text: None, limit: Limit | None = None
    ) -> None:
        self._ways = ways
        self._progress = progress
        self.limit = limit or Limit()
        self._beat = 0.0
        self._numbers = 0
        self._running: dict[str, Outcome] = {}
        self.agents: list[Agent] = []

    def __enter__(self) -> Session:
        try:
            for way in self._ways:
                agent = Agent(way.node)
                self.agents.append(agent)
                try:
                    agent.line = way.open()
                except OSError as error:
                    agent.error = str(error)
            self._greet()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._let_go(self.agents, "")

    def _greet(self) -> None:
        began = time.monotonic()
        while self._may_wait(waited := time.monotonic() - began) and self._silent():
            self._turn(0.5)
        told = "" if self.limit.given_s is None else f" of --timeout {self.limit.given_s:g}"
        self._let_go(self._silent(), f"no answer within {waited:.0f} s{told}", patience_s=0)

    def _silent(self) -> list[Agent]:
        return [agent for agent in self.agents if agent.alive and agent.facts is None]

    def _may_wait(self, waited_s: float) -> bool:
        """For silent agents; where there are ranks enough without them, these get half of the time that a person gives."""
        if self.limit.given_s is None:
            return waited_s < HELLO_S
        mine = self.limit.given_s / (2 if len(self.places()) > 1 else 1)
        return waited_s < HELLO_S and self.limit.spent_s < mine

    def places(self, per_node: int | None = None) -> list[Place]:
        """All GPUs of all agents that answer; one place each where there are none."""
        found = []
        for index, agent in enumerate(self.agents):
            if agent.alive and agent.facts is not None:
                count = len(agent.facts.get("cuda") or ()) or 1
                if per_node is not None:
                    count = min(count, per_node) if agent.facts.get("cuda") else per_node
                found += [Place(index, device) for device in range(count)]
        return found

    # --- jobs ---------------------------------------------------------------------------------------------------------------------------

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Runs jobs side by side; they must not share places. Comes back when all are over, one way or the other."""
        for job in jobs:
            job.limit_s = max(self.limit.left(job.limit_s + LAST_WORDS_S) - LAST_WORDS_S, 1.0)
        outcomes = [self._start(job) for job in jobs]
        began = time.monotonic()
        grace_s = GRACE_S if self.limit.given_s is None else LAST_WORDS_S
        end = began + max((job.limit_s for job in jobs), default=0) + grace_s
        while self._running and (now := time.monotonic()) < end:
            self._turn(0.5)
            for name, outcome in list(self._running.items()):
                if all(rank.ended or not self.agents[rank.place.agent].alive for rank in outcome.ranks):
                    outcome.took_s = time.monotonic() - began
                    del self._running[name]
                elif self._is_in_vain(outcome, now - began):
                    outcome.cut = True
                    self._cut(name, outcome)
                    end = min(end, now + GRACE_S)
        for outcome in self._running.values():
            outcome.took_s = time.monotonic() - began
            for rank in outcome.ranks:
                rank.late = rank.late or not rank.ended
        gone = {rank.place.agent for outcome in self._running.values() for rank in outcome.ranks if not rank.ended}
        self._let_go([self.agents[index] for index in sorted(gone)], "it no longer answers", patience_s=0)
        self._running.clear()
        return outcomes

    def _is_in_vain(self, outcome: Outcome, now_s: float) -> bool:
        """Whether a stuck run would use up what a person allows: from half of that time on, others may want the rest."""
        given, quiet = self.limit.given_s, now_s - outcome.moved_s
        return given is not None and not outcome.cut and quiet > max(given / 2, outcome.patience_s)

    def _start(self, job: Job) -> Outcome:
        self._numbers += 1
        name = str(self._numbers)
        outcome = Outcome(job, [RankOutcome(place) for place in job.places])
        first = self.agents[job.places[0].agent]
        host = str((first.facts or {}).get("address", "127.0.0.1"))
        if len({place.agent for place in job.places}) == 1:
            host = "127.0.0.1"
        for index in sorted({place.agent for place in job.places}):
            specs = [self._spec(job, rank, host) for rank, place in enumerate(job.places) if place.agent == index]
            if job.topology:
                for spec in specs:
                    spec["topology"] = specs[0]["rank"]
            self._send(self.agents[index], {"do": "run", "job": name, "ranks": specs, "limit_s": job.limit_s})
        self._running[name] = outcome
        return outcome

    def _spec(self, job: Job, rank: int, host: str) -> dict[str, Any]:
        where = {"host": host, "port": 0}
        base = {
            "rank": rank,
            "world": len(job.places),
            "device": job.places[rank].device,
            "store": where,
            "seed": 12345,
        }
        return {**base, "env": dict(job.env), "timeout_s": job.limit_s, **job.settings}

    # --- the wire -----------------------------------------------------------------------------------------------------------------------

    def _send(self, agent: Agent, order: Mapping[str, Any]) -> None:
        if agent.line is not None:
            agent.line.send(json.dumps(order).encode() + b"\n")

    def _let_go(self, agents: Sequence[Agent], why: str, patience_s: float = LETTING_GO_S) -> None:
        """All leashes first, then the waiting, `patience_s` at most; what has not ended by itself then is ended here. `why`: what is told of
        those that had no reason yet."""
        lines = [agent.line for agent in agents if agent.line is not None]
        for agent in agents:
            agent.error = agent.error or (why if agent.line is not None else "")
            agent.line = None
        for line in lines:
            line.release()
        deadline = time.monotonic() + patience_s
        while not all(line.ended() for line in lines) and time.monotonic() < deadline:
            time.sleep(0.02)
        sessions = Sessions()
        for line in lines:
            line.close(sessions)
        sessions.close()

    def _turn(self, patience_s: float) -> None:
        """One look at all lines."""
        if time.monotonic() - self._beat > BEAT_S:
            self._beat = time.monotonic()
            for agent in self.agents:
                if agent.facts is not None:
                    self._send(agent, {"do": "beat"})
        lines = {agent.line.fileno(): agent for agent in self.agents if agent.line is not None}
        if not lines:
            return
        waiting = select.poll()
        for number in lines:
            waiting.register(number, select.POLLIN)
        for number, _ in waiting.poll(patience_s * 1000):
            agent = lines[number]
            assert agent.line is not None
            data = agent.line.read()
            if not data:
                self._let_go([agent], agent.line.why())
                continue
            *whole, agent.partial = (agent.partial + data).split(b"\n")
            for text in whole:
                if text.startswith(MARK.encode()):
                    self._hear(agent, json.loads(text[len(MARK) :]))

    def _hear(self, agent: Agent, message: dict[str, Any]) -> None:
        kind = message["event"]
        if kind == "hello":
            agent.facts = message
            return
        outcome = self._running.get(message["job"])
        if outcome is None:
            return
        rank = outcome.ranks[message["rank"]]
        if kind in STEPS:
            outcome.step()
        if kind == "store":
            for index in {place.agent for place in outcome.job.places}:
                self._send(self.agents[index], {"do": "store", "job": message["job"], "port": message["port"]})
        elif kind == "stage":
            rank.stage = message["stage"]
            if message["rank"] == 0 and len(self._running) == 1:
                self._progress(rank.stage)
        elif kind == "row":
            rank.rows.append(message)
        elif kind == "self":
            rank.self_test = message
        elif kind == "done":
            rank.counters = message["counters"]
        elif kind == "topology":
            rank.topology = message["xml"]
        elif kind == "error":
            rank.error = message["text"]
            self._cut(message["job"], outcome)
        elif kind == "ended":
            rank.ended, rank.late = True, message["late"] or outcome.cut
            rank.log = zlib.decompress(base64.b64decode(message["log"]))
            if rank.counters is None:
                rank.error = rank.error or ("" if rank.late else f"its process ended with status {message['status']}")
                self._cut(message["job"], outcome)

    def _cut(self, name: str, outcome: Outcome) -> None:
        """One rank has failed: the others wait for nothing."""
        for index in {place.agent for place in outcome.job.places}:
            self._send(self.agents[index], {"do": "kill", "job": name})
