"""Why a walk ended, in one sentence. Pure."""

from __future__ import annotations

from ncdiag.playbook.record import Record, Taken

_REMEDY = {"shown": "is only shown, it was not carried out", "applied": "was carried out", "failed": "failed"}


def ending_at(last: Taken, back_to: str) -> str:
    """The walk ended at a step that leads no further, or back to the playbook `back_to` (empty: no further)."""
    at = f"The walk ended at {last.playbook}/{last.id}"
    if back_to:
        return f"{at}, which leads back to {back_to}, walked already."
    if last.kind == "remedy":
        return f"{at}: this remedy {_REMEDY[last.outcome]}."
    return f"{at}, with the outcome {last.outcome}: the playbook looks no further then."


def ending_of(record: Record, playbook: str) -> str:
    """The walk came to the end of `playbook`, its last one."""
    outcomes = [step.outcome for step in record.steps if step.kind == "remedy"]
    applied, failed = outcomes.count("applied"), outcomes.count("failed")
    changed = f"remedies carried out: {applied}, failed: {failed}" if applied or failed else "nothing was changed"
    return f"The walk came to the end of {playbook}; {changed}."
