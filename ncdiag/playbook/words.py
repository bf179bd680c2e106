"""A playbook in words, for `ncdiag playbook show`."""

from __future__ import annotations

import shlex

from ncdiag.playbook.schema import AskStep, Playbook, ProbeStep, RunStep

HANG = 29
"""Columns before what a step says."""


def in_words(playbook: Playbook) -> str:
    """Title, signs, and every step with where its outcomes lead."""
    lines = [playbook.title, "", "It looks like:", *(f"  - {line}" for line in playbook.looks_like)]
    lines += ["", "ncdiag knows it by:", *(f"  - {line}" for line in playbook.known_by), "", "Steps:"]
    for step in playbook.steps:
        if isinstance(step, ProbeStep):
            what = f"probe   {step.probe}"
        elif isinstance(step, RunStep):
            what = f"run     {shlex.join(step.run)}"
        elif isinstance(step, AskStep):
            what = f"ask     {step.ask}"
        else:
            what = f"remedy  {step.remedy} (risk {step.risk}; undo: {step.undo})"
        lines.append(f"  {step.id:18} {what}")
        lines += [f"  {'':18}         {step.say}"] if step.say else []
        leads = [(outcome, step.goto(outcome)) for outcome in step.outcomes()]
        lines += [f"  {'':18}         {outcome} -> {goto}" for outcome, goto in leads if goto != "next"]
    return "\n".join(lines)
