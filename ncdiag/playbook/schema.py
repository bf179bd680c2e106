"""What a playbook file may hold. There are no expressions and no templates in it: a step says what it looks at, what it
expects, and where to go on each outcome."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=1000, strip_whitespace=True)]
Argument = Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]+$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9_]{1,63}$")]
VariableValue = Annotated[str, StringConstraints(max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")]

Goto = Annotated[
    str,
    StringConstraints(pattern=r"^(next|stop|cause|step:[a-z0-9]+(-[a-z0-9]+)*|playbook:[a-z0-9]+(-[a-z0-9]+)*)$"),
]
"""`next`: the step below; `stop`: the end; `step:ID`: further down in this file; `playbook:CAUSE`: go on there; `cause`, for
probes: the playbook of the cause that the probe names, the step below where it names none or one that was walked."""

Risk = Literal["none", "low", "medium", "high"]
RISKS: tuple[Risk, ...] = ("none", "low", "medium", "high")
"""none: nothing that runs notices. low: the next start differs. medium: a running job may fail. high: a node may."""


def _one_key(value: object, keys: tuple[str, ...]) -> str | None:
    """The one of `keys` that a mapping has; None where it has none or several."""
    found = [key for key in keys if isinstance(value, dict) and key in value]
    return found[0] if len(found) == 1 else None


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expect(_Part):
    """What the output of a command must be for the outcome `met`; otherwise it is `unmet`. Plain text, no patterns."""

    exit: Annotated[int, Field(ge=0, le=255)] | None = None
    contains: list[Line] = []
    lacks: list[Line] = []


class _Step(_Part):
    id: Slug
    say: Line | None = None
    then: Goto | dict[str, Goto] = "next"

    def goto(self, outcome: str) -> str:
        """Where an outcome leads; one that `then` does not name leads to the next step."""
        return self.then if isinstance(self.then, str) else self.then.get(outcome, "next")

    def outcomes(self) -> tuple[str, ...]:
        raise NotImplementedError


class ProbeStep(_Step):
    """Runs one probe on every node, or reads it from the snapshot."""

    probe: Slug

    def outcomes(self) -> tuple[str, ...]:
        return ("ok", "skip", "warn", "fail", "unknown")


class RunStep(_Step):
    """Runs one read-only command: an argument list, never a shell. `on: one` asks the first node only. `unmet`: what it
    means where the output is not what is expected."""

    run: Annotated[list[Argument], Field(min_length=1, max_length=40)]
    expect: Expect | None = None
    unmet: Line | None = None
    on: Literal["every", "one"] = "every"
    limit_s: Annotated[int, Field(ge=1, le=120)] = 15

    @model_validator(mode="after")
    def _unmet_of_what(self) -> RunStep:
        if self.unmet is not None and self.expect is None:
            raise ValueError("unmet says what a failed expectation means; there is no expect")
        return self

    def outcomes(self) -> tuple[str, ...]:
        return ("met", "unmet", "unknown") if self.expect else ("read", "unknown")


class AskStep(_Step):
    """A question for the person: yes or no, or one of `choices` (answer -> its wording)."""

    ask: Line
    choices: dict[Slug, Line] = {}

    def outcomes(self) -> tuple[str, ...]:
        return (*(self.choices or ("yes", "no")), "unanswered")


class SetEnv(_Part):
    """Sets a variable in the file given with --env-file. Without `value` it is taken from --value NAME=VALUE."""

    set_env: VariableName
    value: VariableValue | None = None


class UnsetEnv(_Part):
    """Takes variables out of the file given with --env-file."""

    unset_env: Annotated[list[VariableName], Field(min_length=1, max_length=20)]


class Follow(_Part):
    """Does to the file given with --env-file what the findings of this probe advise, where they leave nothing open."""

    follow: Slug


class ResizeShm(_Part):
    """Remounts /dev/shm with this size, e.g. `16g`; --value SHM_SIZE=… goes before it."""

    resize_shm: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}[mg]$")]


class EndProcess(_Part):
    """Ends (SIGTERM) the process given with --value PID=…; its command line must hold one of these words."""

    end_process: Annotated[list[Line], Field(min_length=1, max_length=20)]


def _action_kind(value: object) -> str | None:
    return _one_key(value, ("set_env", "unset_env", "follow", "resize_shm", "end_process"))


Action = Annotated[
    Annotated[SetEnv, Tag("set_env")]
    | Annotated[UnsetEnv, Tag("unset_env")]
    | Annotated[Follow, Tag("follow")]
    | Annotated[ResizeShm, Tag("resize_shm")]
    | Annotated[EndProcess, Tag("end_process")],
    Discriminator(
        _action_kind,
        custom_error_type="action_kind",
        custom_error_message="an action is one of set_env, unset_env, follow, resize_shm, end_process",
    ),
]


class Verify(_Part):
    """How a remedy is proved: a probe that must be ok, a read-only command that must meet its `expect`, or `look`: a
    sentence for the person. Exactly one of probe, run, look."""

    probe: Slug | None = None
    run: Annotated[list[Argument], Field(min_length=1, max_length=40)] | None = None
    expect: Expect | None = None
    look: Line | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Verify:
        if len([x for x in (self.probe, self.run, self.look) if x is not None]) != 1:
            raise ValueError("verify has exactly one of probe, run, look")
        if (self.run is None) != (self.expect is None):
            raise ValueError("verify: run and expect go together")
        return self


class RemedyStep(_Step):
    """What to change. Without `action` it is advice: ncdiag shows it and changes nothing."""

    remedy: Line
    risk: Risk
    undo: Line
    verify: Verify
    action: Action | None = None

    def outcomes(self) -> tuple[str, ...]:
        return ("shown", "applied", "failed") if self.action else ("shown",)


def _kind(value: object) -> str | None:
    return _one_key(value, ("probe", "run", "ask", "remedy"))


Step = Annotated[
    Annotated[ProbeStep, Tag("probe")]
    | Annotated[RunStep, Tag("run")]
    | Annotated[AskStep, Tag("ask")]
    | Annotated[RemedyStep, Tag("remedy")],
    Discriminator(
        _kind,
        custom_error_type="step_kind",
        custom_error_message="a step has exactly one of probe, run, ask, remedy",
    ),
]


class Playbook(_Part):
    """One file. Its name without `.yaml` is the cause's slug and is not repeated inside."""

    name: Slug
    title: Line
    looks_like: Annotated[list[Line], Field(min_length=1)]
    known_by: Annotated[list[Line], Field(min_length=1)]
    steps: Annotated[list[Step], Field(min_length=1, max_length=80)]

    def step(self, step_id: str) -> Step | None:
        """The step with this id, or None."""
        return next((s for s in self.steps if s.id == step_id), None)
