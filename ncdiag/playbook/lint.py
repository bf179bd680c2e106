"""Proves a playbook: its links resolve, its steps are reached, its outcomes exist, its commands only read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from ncdiag.playbook.commands import refusal
from ncdiag.playbook.loader import load_marked, names
from ncdiag.playbook.marks import Marked, PlaybookError
from ncdiag.playbook.schema import Follow, Playbook, ProbeStep, RemedyStep, RunStep, Step


def lint(name: str, probes: Collection[str], folder: Path | None = None) -> list[str]:
    """Everything that is wrong with one playbook, as `file:line: what`; an empty list when nothing is."""
    try:
        playbook, marked = load_marked(name, folder)
    except PlaybookError as error:
        return error.problems
    return list(dict.fromkeys([*_structure(playbook, marked, folder), *_probes(playbook, marked, probes)]))


def proved(name: str, folder: Path | None = None) -> Playbook:
    """A playbook that may be walked: links, steps and commands are right. A probe that is not here is left to the walk,
    where it reads as `unknown`. Raises PlaybookError."""
    playbook, marked = load_marked(name, folder)
    problems = list(dict.fromkeys(_structure(playbook, marked, folder)))
    if problems:
        raise PlaybookError(problems)
    return playbook


def _structure(playbook: Playbook, marked: Marked, folder: Path | None) -> Iterator[str]:
    yield from _ids(playbook, marked)
    yield from _links(playbook, marked, set(names(folder)))
    yield from _unreached(playbook, marked)
    yield from _commands(playbook, marked)


def _ids(playbook: Playbook, marked: Marked) -> Iterator[str]:
    seen: set[str] = set()
    for number, step in enumerate(playbook.steps):
        if step.id in seen:
            yield marked.problem(("steps", number, "id"), f"there is another step {step.id!r}")
        seen.add(step.id)


def _targets(step: Step) -> dict[str, str]:
    """Outcome -> where it leads, for every outcome the step can have."""
    return {outcome: step.goto(outcome) for outcome in step.outcomes()}


def _links(playbook: Playbook, marked: Marked, known: Collection[str]) -> Iterator[str]:
    order = {step.id: number for number, step in enumerate(playbook.steps)}
    for number, step in enumerate(playbook.steps):
        at = ("steps", number, "then")
        if isinstance(step.then, dict):
            for outcome in sorted(set(step.then) - set(step.outcomes())):
                yield marked.problem((*at, outcome), f"no outcome {outcome!r}; there are {', '.join(step.outcomes())}")
        for outcome, goto in _targets(step).items():
            kind, _, target = goto.partition(":")
            if kind == "cause" and not isinstance(step, ProbeStep):
                yield marked.problem((*at, outcome), "only a probe names a cause")
            elif kind == "playbook" and target not in known:
                yield marked.problem((*at, outcome), f"there is no playbook {target!r}")
            elif kind == "playbook" and target == playbook.name:
                yield marked.problem((*at, outcome), "leads to this same playbook")
            elif kind == "step" and target not in order:
                yield marked.problem((*at, outcome), f"there is no step {target!r}")
            elif kind == "step" and order[target] <= number:
                yield marked.problem((*at, outcome), f"leads back to {target!r}; steps lead downwards only")


def _unreached(playbook: Playbook, marked: Marked) -> Iterator[str]:
    places = {step.id: number for number, step in enumerate(playbook.steps)}
    reached, todo = set(), [0]
    while todo:
        place = todo.pop()
        if place in reached or place >= len(playbook.steps):
            continue
        reached.add(place)
        for goto in _targets(playbook.steps[place]).values():
            kind, _, target = goto.partition(":")
            if kind in ("next", "cause"):
                todo.append(place + 1)
            elif kind == "step" and target in places:
                todo.append(places[target])
    for number, step in enumerate(playbook.steps):
        if number not in reached:
            yield marked.problem(("steps", number), f"no step leads to {step.id!r}")


def _probes(playbook: Playbook, marked: Marked, probes: Collection[str]) -> Iterator[str]:
    for number, step in enumerate(playbook.steps):
        if isinstance(step, ProbeStep) and step.probe not in probes:
            yield marked.problem(("steps", number, "probe"), f"there is no probe {step.probe!r}")
        if isinstance(step, RemedyStep) and isinstance(step.action, Follow) and step.action.follow not in probes:
            yield marked.problem(("steps", number, "action", "follow"), f"there is no probe {step.action.follow!r}")
        if isinstance(step, RemedyStep) and step.verify.probe and step.verify.probe not in probes:
            yield marked.problem(("steps", number, "verify", "probe"), f"there is no probe {step.verify.probe!r}")


def _commands(playbook: Playbook, marked: Marked) -> Iterator[str]:
    for number, step in enumerate(playbook.steps):
        if isinstance(step, RunStep):
            argv, at = step.run, ("steps", number, "run")
        elif isinstance(step, RemedyStep) and step.verify.run:
            argv, at = step.verify.run, ("steps", number, "verify", "run")  # type: ignore[assignment]
        else:
            continue
        why = refusal(argv)
        if why is not None:
            yield marked.problem(at, why)
