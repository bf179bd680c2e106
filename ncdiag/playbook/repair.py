"""Carries a prepared remedy out and proves it by its own check: made before, made again after."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from ncdiag.model import Status
from ncdiag.nodeset import counted
from ncdiag.playbook.actions import Prepared, Refused
from ncdiag.playbook.evidence import fold, judge, seen_in, worst
from ncdiag.playbook.record import Seen, Taken, shorten
from ncdiag.playbook.schema import RemedyStep, Verify
from ncdiag.playbook.targets import Target


@dataclass(frozen=True)
class Check:
    """A remedy's own check, once made."""

    holds: bool | None
    """None: it could not be made, or only a person can see it."""
    wrong: frozenset[str] = frozenset()
    """What does not hold, a sentence each."""
    proof: list[Seen] = field(default_factory=list)


def look(verify: Verify, target: Target) -> Check:
    """Makes the check that `verify` describes."""
    if verify.probe is not None:
        findings = target.probe(verify.probe)
        status = worst(findings)
        bad = (Status.FAIL, Status.WARN)
        holds = False if status in bad else None if status is Status.UNKNOWN else True
        wrong = frozenset(f"{f.where.get('node', '')} {f.summary}" for f in findings if f.status in bad)
        return Check(holds, wrong, seen_in(findings))
    if verify.run is not None:
        answers = target.run(verify.run, 15)
        command = shlex.join(verify.run)
        outcome = judge(answers, verify.expect)
        proof = fold([(a.node, command, shorten(a.text)) for a in answers])
        return Check({"met": True, "unmet": False}.get(outcome), frozenset([command] * (outcome == "unmet")), proof)
    return Check(None)


def repair(step: RemedyStep, prepared: Prepared, target: Target, taken: Taken) -> None:
    """Applies it and writes outcome, note, evidence and proof into `taken`."""
    before = look(step.verify, target)
    try:
        taken.note = prepared.apply()
    except (Refused, OSError) as error:
        taken.note, taken.outcome = f"not carried out: {error}", "failed"
        return
    after = look(step.verify, target)
    taken.evidence, taken.proved, taken.outcome = after.proof, after.holds is True, "applied"
    gone = len(before.wrong - after.wrong)
    if step.verify.look is not None:
        taken.note += f"; to be proved by a person: {step.verify.look}"
    elif after.holds is True:
        taken.note += "; verified"
    elif after.holds is None:
        taken.note += "; the check after it could not be made"
    elif gone and not after.wrong - before.wrong:
        taken.note += f"; {gone} of {counted(len(before.wrong), 'finding')} are gone, the rest is left"
    else:
        taken.outcome = "failed"
        taken.note += "; the check after it does not hold"
