"""Agents on nodes, and jobs on them: starts, follows, gives up in time, and lets go of everything at the end."""

from __future__ import annotations

import base64
import json
import select
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.bandwidth.agent import MARK
from ncdiag.bandwidth.reach import Line, Way

HELLO_S = 90.0
"""Torch takes its time to load."""
BEAT_S = 15.0
GRACE_S = 10.0
"""What a job may take beyond its limit before its agents are thought to be gone."""


@dataclass(frozen=True)
class Place:
    """Where a rank runs."""

    agent: int
    """Index in `Session.agents`."""
    device: int

    def on(self, session: Session) -> str:
        return session.agents[self.agent].node


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


@dataclass
class RankOutcome:
    """What one rank said."""

    place: Place
    rows: list[dict[str, Any]] = field(default_factory=list)
    self_test: dict[str, Any] | None = None
    counters: dict[str, int] | None = None
    """What the RDMA error counters of its node rose by; None when it did not get to its end."""
    error: str = ""
    stage: str = "starting"
    late: bool = False
    """It had to be ended when the time was up."""
    ended: bool = False
    log: bytes = b""
    topology: str = ""


@dataclass
class Job:
    """One group of ranks and what they measure."""

    places: list[Place]
    settings: dict[str, Any]
    """`ops`, `sizes`, `dtype`, `backend`, `warmup`, `precision`, `budget_s`, `check`, `self`."""
    env: dict[str, str | None] = field(default_factory=dict)
    limit_s: float = 300.0
    topology: bool = False
    """Also fetch NCCL's topology dump of every node."""


@dataclass
class Outcome:
    job: Job
    ranks: list[RankOutcome]
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        return all(rank.counters is not None for rank in self.ranks)


class Session:
    """`with Session(ways) as session:` — everything that was started ends with it."""

    def __init__(self, ways: Sequence[Way], progress: Callable[[str], None] = lambda text: None) -> None:
        self._ways = ways
        self._progress = progress
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
        for agent in self.agents:  # all leashes first, then the waiting
            if agent.line is not None:
                agent.line.release()
        for agent in self.agents:
            if agent.line is not None:
                line, agent.line = agent.line, None
                line.close()

    def _greet(self) -> None:
        deadline = time.monotonic() + HELLO_S
        while any(agent.alive and agent.facts is None for agent in self.agents) and time.monotonic() < deadline:
            self._turn(0.5)
        for agent in self.agents:
            if agent.alive and agent.facts is None:
                self._lose(agent, f"no answer within {HELLO_S:g} s")

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
        outcomes = [self._start(job) for job in jobs]
        began = time.monotonic()
        limit = max((job.limit_s for job in jobs), default=0) + GRACE_S
        while self._running and time.monotonic() - began < limit:
            self._turn(0.5)
            for name, outcome in list(self._running.items()):
                if all(rank.ended or not self.agents[rank.place.agent].alive for rank in outcome.ranks):
                    outcome.took_s = time.monotonic() - began
                    del self._running[name]
        for outcome in self._running.values():
            outcome.took_s = time.monotonic() - began
            for rank in outcome.ranks:
                if not rank.ended:
                    self._lose(self.agents[rank.place.agent], "it no longer answers")
                    rank.late = True
        self._running.clear()
        return outcomes

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

    def _lose(self, agent: Agent, why: str) -> None:
        line, agent.line = agent.line, None
        agent.error = agent.error or why
        if line is not None:
            line.close()

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
                self._lose(agent, agent.line.why())
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
            rank.ended, rank.late = True, message["late"]
            rank.log = zlib.decompress(base64.b64decode(message["log"]))
            if rank.counters is None:
                rank.error = rank.error or ("" if rank.late else f"its process ended with status {message['status']}")
                self._cut(message["job"], outcome)

    def _cut(self, name: str, outcome: Outcome) -> None:
        """One rank has failed: the others wait for nothing."""
        for index in {place.agent for place in outcome.job.places}:
            self._send(self.agents[index], {"do": "kill", "job": name})
