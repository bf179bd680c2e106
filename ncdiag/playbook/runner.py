"""Walks a playbook: reads by itself, asks a person, and changes something only when it was allowed and confirmed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from ncdiag.model import Status
from ncdiag.placeholders import filled
from ncdiag.playbook.actions import Inputs, Prepared, Refused, prepare
from ncdiag.playbook.ending import ending_at, ending_of
from ncdiag.playbook.evidence import fold, judge, seen_in, verify_text, worst
from ncdiag.playbook.marks import PlaybookError
from ncdiag.playbook.processes import is_list, that_matter
from ncdiag.playbook.record import Record, Taken, shorten
from ncdiag.playbook.repair import look, repair
from ncdiag.playbook.schema import RISKS, AskStep, Playbook, ProbeStep, RemedyStep, Risk, RunStep, Step
from ncdiag.playbook.targets import Target

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
    """Gives the proved playbook of a name (`lint.proved`); a link to one that cannot be used ends the walk."""
    person: Person = field(default_factory=Nobody)
    apply: bool = False
    """False: a dry run. Remedies are shown only."""
    max_risk: Risk | None = None
    """--yes: remedies up to this risk need no confirmation. None: each needs one."""
    inputs: Inputs = field(default_factory=Inputs)
    deadline_s: float = 1800.0
    progress: Callable[[str], None] = lambda line: None
    known: Mapping[str, str] = field(default_factory=dict)
    """Words in capitals that remedies are shown with their values for: PID, PEER, INTERFACE. No action takes them from here."""

    def run(self, playbook: Playbook) -> Record:
        """Takes step after step until `stop`, the end, a playbook seen before, or the time limit."""
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        record = Record(playbook.name, playbook.title, self.target.nodes, self.apply, started)
        end, seen, place = time.monotonic() + self.deadline_s, {playbook.name}, 0
        while place < len(playbook.steps):
            if time.monotonic() > end or len(record.steps) >= MAX_STEPS:
                record.cut_short = True
                record.ended = f"The limit of {self.deadline_s:g} s or {MAX_STEPS} steps was reached."
                return record
            step = playbook.steps[place]
            taken = self._take(playbook, step)
            if isinstance(step, RemedyStep) and place and record.steps:
                _only_where(playbook.steps[place - 1], record.steps[-1], taken)
            record.steps.append(taken)
            if taken.goto == "cause":
                taken.goto = self._of_cause(taken.cause, seen)
            self.progress(f"{playbook.name}/{taken.id}: {taken.outcome}{' - ' + taken.note if taken.note else ''}")
            kind, _, name = taken.goto.partition(":")
            if kind == "stop" or (kind == "playbook" and name in seen):
                record.ended = ending_at(taken, back_to=name)
                return record
            if kind == "playbook":
                seen.add(name)
                try:
                    playbook, place = self.load(name), 0
                except PlaybookError as error:
                    record.cut_short = True
                    record.ended = f"{taken.id} leads to {name}, which cannot be used: {error.problems[0]}."
                    return record
            elif kind == "step":
                place = [step.id for step in playbook.steps].index(name)
            else:
                place += 1
        record.ended = ending_of(record, playbook.name)
        return record

    def _of_cause(self, cause: str | None, seen: set[str]) -> str:
        """Where the cause that a probe names leads: the next step where it has no playbook or was walked already."""
        if cause is None or cause in seen:
            return "next"
        try:
            self.load(cause)
        except PlaybookError:
            return "next"
        return f"playbook:{cause}"

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
        status = worst(findings)
        evidence = seen_in([f for f in findings if f.status is status or f.status.severity > Status.SKIP.severity])
        note = next((f.remedy for f in findings if f.status is status and f.remedy), "") or ""
        text = f"probe {step.probe}" + (f": {step.say}" if step.say else "")
        cause = next((f.cause for f in findings if f.status is status and f.cause), None)
        return Taken(playbook.name, step.id, "probe", text, status.value, note, evidence, cause=cause)

    def _run(self, playbook: Playbook, step: RunStep) -> Taken:
        command = shlex.join(step.run)
        text = command + (f": {step.say}" if step.say else "")
        answers = self.target.run(step.run, step.limit_s)
        answers = answers[:1] if step.on == "one" else answers
        outcome = judge(answers, step.expect)
        unread = sorted({answer.text for answer in answers if answer.rc is None})
        means = step.unmet if outcome == "unmet" else None
        ends = sorted({answer.rc for answer in answers if answer.rc})
        codes = f"it ended with exit {', '.join(map(str, ends))}" if ends and step.expect is None else None
        note = "; ".join(filter(None, [means, codes, f"not run: {'; '.join(unread)}" if unread else None]))
        ran = [answer for answer in answers if answer.rc is not None]
        shown = [that_matter(a.text, self.target.pid) if is_list(step.run) else a.text for a in ran]
        evidence = fold(
            [
                (a.node, command, shorten(text) or f"(no output, exit {a.rc})")
                for a, text in zip(ran, shown, strict=True)
            ]
        )
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
        told, undo = filled(step.remedy, self.known), filled(step.undo, self.known)
        taken = Taken(playbook.name, step.id, "remedy", told, "shown", risk=step.risk, undo=undo)
        taken.verify = verify_text(step.verify)
        if step.action is None:
            return taken
        if not self.target.local:
            taken.note = "not applied: remedies are carried out on this machine only; run it there with --apply"
            return taken
        try:
            prepared = prepare(step.action, self.inputs, self.target.probe)
        except Refused as why:
            taken.note = f"not applied: {why}"
            return taken
        taken.undo = prepared.undo
        if not self.apply:
            taken.note = f"dry run; --apply would do:\n{prepared.preview}"
            return taken
        if not self._unasked(step) and not self.person.confirm(step, prepared):
            taken.note = f"not applied: it was not confirmed. It would do:\n{prepared.preview}"
            return taken
        repair(step, prepared, self.target, taken)
        return taken

    def _unasked(self, step: RemedyStep) -> bool:
        """Whether --yes covers it: its risk is low enough, and its own check fails before it."""
        if self.max_risk is None or RISKS.index(step.risk) > RISKS.index(self.max_risk):
            return False
        return look(step.verify, self.target).holds is False


def _only_where(before: Step, asked: Taken, remedy: Taken) -> None:
    """Says of a remedy to which answer it belongs, where it came up because nobody answered."""
    if not isinstance(before, AskStep) or asked.id != before.id or asked.outcome != "unanswered" or not before.choices:
        return
    meant = [f"`{answer}`, {words}" for answer, words in before.choices.items() if before.goto(answer) == "next"]
    if meant and len(meant) < len(before.choices):
        only = f"only where the answer to `{before.id}` is {' or '.join(meant)}; nobody answered"
        remedy.note = f"{only}; {remedy.note}" if remedy.note else only
