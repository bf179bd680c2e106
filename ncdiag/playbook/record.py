"""What a walk leaves behind: every step, its outcome and evidence, as JSON and as Markdown for an incident ticket."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from ncdiag.exits import Exit
from ncdiag.model import SCHEMA

TEXT_LIMIT = 4000
"""Characters of one answer that the record keeps; head and tail."""

_MEANS = {
    "failed": "a remedy did not work",
    "repaired": "it was changed and the check after it holds",
    "to-prove": "it was changed, and somebody must see that it helped",
    "to-do": "something waits for a person",
    "incomplete": "something could not be looked at or was not answered",
    "clear": "all was looked at, nothing is to be done",
}

_CONFIRMS = ("fail", "warn", "unmet", "yes")


@dataclass(frozen=True)
class Seen:
    """One piece of evidence. Nodes with the same answer share it."""

    nodes: tuple[str, ...]
    source: str
    text: str


@dataclass
class Taken:
    """One step that was taken."""

    playbook: str
    id: str
    kind: str
    """probe, run, ask, remedy."""
    text: str
    """What was looked at, asked or advised."""
    outcome: str
    """One of the step's outcomes; a remedy is `shown`, `applied` (and verified) or `failed`."""
    note: str = ""
    """Why it was not run, what the person answered, what was changed."""
    evidence: list[Seen] = field(default_factory=list)
    goto: str = "next"
    took_s: float = 0.0
    risk: str | None = None
    undo: str | None = None
    verify: str | None = None
    chosen: bool = False
    """The person picked it among choices."""
    cause: str | None = None
    """What the worst finding of a probe names."""
    proved: bool = False
    """The check after the remedy was made by ncdiag and holds; False also where only a person can see it."""


@dataclass
class Record:
    """One walk."""

    playbook: str
    title: str
    nodes: str
    """The fleet it was walked on."""
    applied: bool
    """Whether remedies were allowed; False is a dry run."""
    started_at: str
    """UTC, ISO 8601."""
    steps: list[Taken] = field(default_factory=list)
    ended: str = ""
    """Why the walk ended, in one sentence."""
    cut_short: bool = False
    """It ended at a limit or at a link that leads nowhere, not by itself."""

    others: list[str] = field(default_factory=list)
    """The commands that walk what else the result given with --from names."""

    @property
    def result(self) -> str:
        """`failed`, `repaired`, `to-prove` (changed, and a person must see that it helped), `to-do` (remedies wait for a
        person), `incomplete` (something was not read or not answered), `clear` (all was read, nothing is to be done)."""
        remedies = [step.outcome for step in self.steps if step.kind == "remedy"]
        if "failed" in remedies:
            return "failed"
        if "applied" in remedies:
            return "repaired" if all(s.proved for s in self.steps if s.outcome == "applied") else "to-prove"
        confirmed = any(step.outcome in _CONFIRMS or step.chosen for step in self.steps)
        if remedies and confirmed:
            return "to-do"
        unread = any(step.outcome in ("unknown", "unanswered") for step in self.steps)
        if unread or remedies or self.cut_short:
            return "incomplete"
        return "to-do" if confirmed else "clear"

    @property
    def exit(self) -> Exit:
        """The exit code of `ncdiag playbook run`: no more is in order than what was walked, so others left over make it incomplete."""
        codes = {"failed": Exit.FINDING, "to-do": Exit.FINDING, "to-prove": Exit.FINDING, "incomplete": Exit.INCOMPLETE}
        return codes.get(self.result, Exit.INCOMPLETE if self.others else Exit.OK)

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract."""
        data = asdict(self)
        for step in data["steps"]:
            step.pop("chosen")
            step["evidence"] = [{**seen, "nodes": list(seen["nodes"])} for seen in step["evidence"]]
            for key in ("risk", "undo", "verify", "cause"):
                if step[key] is None:
                    step.pop(key)
        return {"schema": SCHEMA, "command": "playbook", **data, "result": self.result, "exit": int(self.exit)}


def shorten(text: str) -> str:
    """Head and tail of a long answer, in whole lines where it has them; says how much is left out."""
    text = text.rstrip()
    if len(text) <= TEXT_LIMIT:
        return text
    head, tail = text[: TEXT_LIMIT * 3 // 4], text[-TEXT_LIMIT // 4 :]
    head, tail = head[: head.rfind("\n")] if "\n" in head else head, tail.partition("\n")[2] or tail
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"


def as_markdown(record: Record) -> str:
    """The record as an incident ticket takes it."""
    mode = "remedies allowed" if record.applied else "dry run, nothing was changed"
    lines = [
        f"# ncdiag playbook: {record.title}",
        "",
        f"- playbook: `{record.playbook}`",
        f"- nodes: `{record.nodes}`",
        f"- started: {record.started_at} ({mode})",
        f"- result: **{record.result}**, {_MEANS[record.result]}. {record.ended}",
        *(f"- not walked yet: `{command}`" for command in record.others),
        "",
        "## Steps",
        "",
    ]
    for step in record.steps:
        lines += _step(step)
    todo = [step for step in record.steps if step.kind == "remedy"]
    if todo:
        lines += ["", "## Remedies", ""]
        for step in todo:
            lines += [
                f"- **{step.outcome}** {step.playbook}/{step.id}, risk {step.risk}: {step.text}",
                f"  - undo: {step.undo}",
                f"  - verify: {step.verify}",
            ]
            lines += _note(step.note)
    lines += ["", "## Evidence", ""]
    for step in record.steps:
        lines += _evidence(step)
    return "\n".join(lines).rstrip() + "\n"


def _step(step: Taken) -> list[str]:
    """A list and no table: its lines can be broken where a terminal ends. A command's outcome has what it means below it;
    remedies have a chapter of their own."""
    name = f"- **{step.outcome}** {step.playbook}/{step.id}"
    if step.kind == "remedy":
        return [name]
    return [f"{name}: {_one_line(step.text)}"] + [f"  - {_one_line(step.note)}"] * (
        step.kind == "run" and step.note != ""
    )


def _note(note: str) -> list[str]:
    first, *more = note.splitlines() or [""]
    return [f"  - {first}"] * bool(first) + (
        ["", "    ```", *(f"    {line}" for line in more), "    ```", ""] if more else []
    )


def _evidence(step: Taken) -> list[str]:
    if not step.evidence and (not step.note or step.kind == "remedy"):
        return []
    lines = [f"### {step.playbook}/{step.id}: {step.outcome}", ""]
    lines += [step.note, ""] if step.note and step.kind != "remedy" else []
    for seen in step.evidence:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", seen.text)), default=0))
        where = f"{', '.join(seen.nodes)}: " if any(seen.nodes) else ""
        lines += [f"{where}`{seen.source}`", "", fence, seen.text, fence, ""]
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())
