"""Walks a playbook: reads by itself, asks a person, and changes something only when it was allowed and confirmed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from ncdiag.model import Status
from ncdiag.playbook.actions import Inputs, Prepared, Refused, prepare
from ncdiag.playbook.record import Record, Seen, Taken, shorten
from ncdiag.playbook.schema import RISKS, AskStep, Expect, Playbook, ProbeStep, RemedyStep, Risk, RunStep, Step, Verify
from ncdiag.playbook.targets import Answer, Target, evidence_of

MAX_STEPS = 200


class Person(Protocol):
    """Who answers questions and confirms remedies."""

    def ask(self, step: AskStep) -> str | None:
        """One of the step's answers, None when nobody answers."""

    def confirm(self, step: RemedyStep, prepared: Prepared) -> bool:
        """Shows undo and change; True when the person agrees."""


class Nobody:
    """Unattended: only answers given beforehand, and no confirmation."""

    def __init__(self, answers: Mapping[str, str] | None = None) -> None:
        self._answers = dict(answers or {})

    def ask(self, step: AskStep) -> str | None:
        return self._answers.get(step.id)

    def confirm(self, step: RemedyStep, prepared: Prepared) -> bool:
        return False


@dataclass
class Walk:
    """How a playbook is walked."""

    target: Target
    load: Callable[[str], Playbook]
    """Gives the playbook of a name; a `playbook:` link that cannot be loaded ends the walk."""
    person: Person = field(default_factory=Nobody)
    apply: bool = False
    """False: a dry run. Remedies are shown only."""
    max_risk: Risk | None = None
    """--yes: remedies up to this risk need no confirmation. None: each needs one."""
    inputs: Inputs = field(default_factory=Inputs)
    deadline_s: float = 1800.0
    progress: Callable[[str], None] = lambda line: None

    def run(self, playbook: Playbook) -> Record:
        """Takes step after step until `stop`, the end, a playbook seen before, or the time limit."""
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        record = Record(playbook.name, playbook.title, self.target.nodes, self.apply, started)
        end, seen, place = time.monotonic() + self.deadline_s, {playbook.name}, 0
        while True:
            if place >= len(playbook.steps):
                record.ended = f"The last step of {playbook.name} was taken."
                return record
            if time.monotonic() > end or len(record.steps) >= MAX_STEPS:
                record.ended = f"The limit of {self.deadline_s:g} s or {MAX_STEPS} steps was reached."
                return record
            taken = self._take(playbook, playbook.steps[place])
            record.steps.append(taken)
            self.progress(f"{playbook.name}/{taken.id}: {taken.outcome}{' - ' + taken.note if taken.note else ''}")
            kind, _, name = taken.goto.partition(":")
            if kind == "stop":
                record.ended = f"{playbook.name}/{taken.id} ended it with {taken.outcome}."
                return record
            if kind == "playbook":
                if name in seen:
                    record.ended = f"{taken.id} leads back to {name}, which was walked already."
                    return record
                seen.add(name)
                playbook, place = self.load(name), 0
            elif kind == "step":
                place = next(n for n, step in enumerate(playbook.steps) if step.id == name)
            else:
                place += 1

    def _take(self, playbook: Playbook, step: Step) -> Taken:
        begin = time.monotonic()
        if isinstance(step, ProbeStep):
            taken = self._probe(playbook, step)
        elif isinstance(step, RunStep):
            taken = self._run(playbook, step)
        elif isinstance(step, AskStep):
            taken = self._ask(playbook, step)
        else:
            taken = self._remedy(playbook, step)
        taken.goto = step.goto(taken.outcome)
        taken.took_s = round(time.monotonic() - begin, 3)
        return taken

    def _probe(self, playbook: Playbook, step: ProbeStep) -> Taken:
        findings = self.target.probe(step.probe)
        worst = max((finding.status for finding in findings), key=lambda status: status.severity)
        shown = [f for f in findings if f.status is worst or f.status.severity > Status.SKIP.severity]
        evidence = _fold([(str(f.where.get("node", "")), *_pair(evidence_of(f))) for f in shown])
        note = next((f.remedy for f in findings if f.status is worst and f.remedy), "") or ""
        text = f"probe {step.probe}" + (f": {step.say}" if step.say else "")
        return Taken(playbook.name, step.id, "probe", text, worst.value, note, evidence)

    def _run(self, playbook: Playbook, step: RunStep) -> Taken:
        command = shlex.join(step.run)
        text = command + (f": {step.say}" if step.say else "")
        answers = self.target.run(step.run, step.limit_s)
        answers = answers[:1] if step.on == "one" else answers
        outcome = judge(answers, step.expect)
        unread = sorted({answer.text for answer in answers if answer.rc is None})
        note = f"not run: {'; '.join(unread)}" if unread else ""
        ran = [answer for answer in answers if answer.rc is not None]
        evidence = _fold([(a.node, command, shorten(a.text) or f"(no output, exit {a.rc})") for a in ran])
        return Taken(playbook.name, step.id, "run", text, outcome, note, evidence)

    def _ask(self, playbook: Playbook, step: AskStep) -> Taken:
        answer = self.person.ask(step)
        if answer is not None and answer not in step.outcomes()[:-1]:
            answer = None
        note = f"answered: {step.choices.get(answer, answer)}" if answer else "nobody answered"
        taken = Taken(playbook.name, step.id, "ask", step.ask, answer or "unanswered", note)
        taken.chosen = bool(answer and step.choices)
        return taken

    def _remedy(self, playbook: Playbook, step: RemedyStep) -> Taken:
        taken = Taken(playbook.name, step.id, "remedy", step.remedy, "shown", risk=step.risk, undo=step.undo)
        taken.verify = verify_text(step.verify)
        if step.action is None:
            return taken
        if not self.target.local:
            taken.note = "not applied: remedies are carried out on this machine only; run it there with --apply"
            return taken
        try:
            prepared = prepare(step.action, self.inputs)
        except Refused as why:
            taken.note = f"not applied: {why}"
            return taken
        taken.undo = prepared.undo
        if not self.apply:
            taken.note = f"dry run; --apply would do:\n{prepared.preview}"
            return taken
        allowed = self.max_risk is not None and RISKS.index(step.risk) <= RISKS.index(self.max_risk)
        if not allowed and not self.person.confirm(step, prepared):
            taken.note = "not applied: it was not confirmed"
            return taken
        return self._apply(step, prepared, taken)

    def _apply(self, step: RemedyStep, prepared: Prepared, taken: Taken) -> Taken:
        try:
            taken.note = prepared.apply()
        except (Refused, OSError) as error:
            taken.note, taken.outcome = f"not carried out: {error}", "failed"
            return taken
        taken.outcome, proof = self._verify(step.verify)
        taken.evidence = proof
        taken.note += "; verified" if taken.outcome == "applied" else "; the check after it does not hold"
        return taken

    def _verify(self, verify: Verify) -> tuple[str, list[Seen]]:
        """`applied` when the change is proved or only a person can see it, else `failed`; and the proof."""
        if verify.probe is not None:
            findings = self.target.probe(verify.probe)
            worst = max((finding.status for finding in findings), key=lambda status: status.severity)
            proof = _fold([(str(f.where.get("node", "")), *_pair(evidence_of(f))) for f in findings])
            return ("applied" if worst in (Status.OK, Status.SKIP) else "failed"), proof
        if verify.run is not None:
            answers = self.target.run(verify.run, 15)
            proof = _fold([(a.node, shlex.join(verify.run), shorten(a.text)) for a in answers])
            return ("applied" if judge(answers, verify.expect) == "met" else "failed"), proof
        return "applied", [Seen((), "to be seen by a person", verify.look or "")]


def judge(answers: list[Answer], expect: Expect | None) -> str:
    """`met`, `unmet` or `unknown`; without expectation `read` or `unknown`. One node is enough for `unmet`, and for
    `unknown`."""
    if not answers or any(answer.rc is None for answer in answers):
        failed = expect is not None and any(a.rc is not None and not _meets(a, expect) for a in answers)
        return "unmet" if failed else "unknown"
    if expect is None:
        return "read"
    return "met" if all(_meets(answer, expect) for answer in answers) else "unmet"


def _meets(answer: Answer, expect: Expect) -> bool:
    return (
        (expect.exit is None or answer.rc == expect.exit)
        and all(text in answer.text for text in expect.contains)
        and not any(text in answer.text for text in expect.lacks)
    )


def verify_text(verify: Verify) -> str:
    """How a remedy is proved, in words."""
    if verify.probe is not None:
        return f"ncdiag preflight --only {verify.probe}"
    return shlex.join(verify.run) if verify.run is not None else str(verify.look)


def _pair(evidence: object) -> tuple[str, str]:
    return evidence.source, evidence.text  # type: ignore[attr-defined]


def _fold(rows: list[tuple[str, str, str]]) -> list[Seen]:
    """`(node, source, text)` rows; nodes with the same source and text become one entry."""
    folded: dict[tuple[str, str], list[str]] = {}
    for node, source, text in rows:
        folded.setdefault((source, text), []).append(node)
    return [Seen(tuple(dict.fromkeys(nodes)), source, text) for (source, text), nodes in folded.items()]
