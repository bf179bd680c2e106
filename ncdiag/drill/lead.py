"""Leads through a drill: picks the exercise, checks the machine, lets ncdiag or a person find the cause, and shows the truth."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from ncdiag import redact
from ncdiag.exits import Exit
from ncdiag.model import SCHEMA
from ncdiag.report.causes import QUIET
from ncdiag.suggest import did_you_mean

from . import attempt, exercise, needs, screen, session, shell
from .bench import Bench
from .exercise import Answer
from .faults import FAULTS, Fault
from .session import Scene, takes
from .trainee import Said, Trainee

Write = Callable[[dict[str, Any], str], None]
"""Takes the result as data and in words."""


class Refused(Exception):
    """The command line or the machine does not allow it; the message says what does."""


class Show:
    """Text for people to stdout, or to stderr where stdout is for JSON; notes on stderr."""

    def __init__(self, *, quiet: bool = False, err: bool = False) -> None:
        self._quiet, self._out = quiet, sys.stderr if err else sys.stdout

    def note(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        print(redact.text(text), file=self._out, flush=True)

    def ask(self) -> str:
        """A line from the terminal. Raises EOFError. It looks up often: a signal just before a read that blocks would be noticed only after it."""
        print("drill> ", end="", file=self._out, flush=True)
        while not select.select([sys.stdin], [], [], 0.2)[0]:
            pass
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line


def end_on_signals() -> None:
    """Ctrl-C, SIGTERM or a closed terminal ends the drill; further ones do not disturb its clearing up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupted(*_: Any) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.write(2, b"\nending: the hosts and all that runs on them are removed\n")
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupted)


def choose(word: str | None, shape: str | None, seed: int) -> Fault:
    """The exercise of this number or name, else one that can run here, of `shape` or gloo. Raises Refused."""
    if word is None:
        usable = [fault for fault in FAULTS.values() if fault.shape == (shape or "gloo") and not needs.lacks(fault)]
        picked = exercise.pick(usable, seed)
        if picked is None:
            raise Refused(f"no exercise of the shape {shape} can run here; see: {shell.program()} drill --list")
        return picked
    found = exercise.find(word)
    if found is None:
        hint = did_you_mean(word, FAULTS) or f"; see: {shell.program()} drill --list"
        raise Refused(f"there is no exercise {word!r}{hint}")
    if shape and found.shape != shape:
        raise Refused(f"exercise {word} has the shape {found.shape}, not {shape}; leave --shape out")
    return found


def check(fault: Fault) -> None:
    """Raises Refused with everything that the machine lacks for it."""
    missing = [*needs.missing(fault.shape), *filter(None, [needs.lacks(fault)])]
    if missing:
        raise Refused("this machine cannot run this drill:\n" + "\n".join(f"  - {reason}" for reason in missing))


def read_answer(words: str) -> Answer:
    """An answer given in advance. Raises Refused."""
    answer = exercise.read_answer(words, ("a", "b"))
    if isinstance(answer, str):
        raise Refused(answer)
    known = screen.causes()
    if answer.cause not in known:
        raise Refused(
            f"there is no cause {answer.cause!r}{did_you_mean(answer.cause, known) or '; see: ncdiag playbook list'}"
        )
    return answer


def solve(fault: Fault, seed: int, show: Show, write: Write) -> int:
    """ncdiag finds the cause, watching from the start on. Raises NotSet."""
    show.note("hosts come up, the engine is started broken, ncdiag watches it (gloo: half a minute; vLLM: up to three)")
    began = time.monotonic()
    found, wrong = attempt.run(fault, None)
    row = attempt.record(fault, found, wrong, time.monotonic() - began)
    text = f"{found.words.strip()}\n\nThe truth:\n\n{screen.truth(fault, [])}\n{screen.seen(row, not wrong)}"
    text += "".join(f"not right: {reason}\n" for reason in wrong)
    show.say(text)
    result = _result(fault, seed, "ncdiag", not wrong, ncdiag=row, truth=truth(fault))
    write(result, text)
    return int(result["exit"])


def ask(fault: Fault, seed: int, show: Show, write: Write, *, answer: Answer | None, seconds: float, keep: bool) -> int:
    """A person finds the cause, or has said it in advance. Raises NotSet."""
    show.note("hosts come up …")
    with session.scene(fault) as scene:
        show.note(
            "the engine is started; you are called when it has stood still or ended (gloo: a quarter of a minute; vLLM: two) …"
        )
        scene.settle()
        page = screen.call(scene, seconds / 60)
        show.say(page)
        if answer is None:
            said = Trainee(scene, seed, ask=show.ask, say=show.say, page=page).listen(seconds)
        else:
            right = not exercise.wrong_with(fault, answer)
            said = Said(answer, right, wrong=int(not right))
        took_s, ways = round(time.time() - scene.started_at, 1), scene.ways()
        text = _verdict(fault, said, took_s) + "\n\n" + screen.truth(fault, ways)
        show.say(text)
        show.note("ncdiag looks at it where it stands now (up to half a minute) …")
        found, agrees = look(scene)
        show.say(screen.seen(found, agrees))
        more: dict[str, Any] = {"wrong_answers": said.wrong, "hints": said.hints, "took_s": took_s}
        more |= {"answer": None if said.answer is None else vars(said.answer)}
        more |= {"ncdiag": {**found, "right": agrees}, "truth": {**truth(fault), "ways": ways}}
        result = _result(fault, seed, "trainee", said.right, **more)
        write(result, text + screen.seen(found, agrees))
        if keep:
            stay(scene.made, show)
    return int(result["exit"])


def hold(fault: Fault, show: Show) -> None:
    """Call and truth at once, and the hosts until a signal ends it. Raises NotSet."""
    with session.scene(fault) as scene:
        scene.settle()
        show.say(screen.call(scene, None) + "\nThe truth:\n\n" + screen.truth(fault, scene.ways()))
        stay(scene.made, show)


def look(scene: Scene) -> tuple[dict[str, Any], bool]:
    """The first cause that ncdiag sees where the job stands now, and whether it is right."""
    result, _ = scene.look()
    cause: dict[str, Any] = next(iter(result.get("causes", ())), {})
    found = {key: cause.get(key, "") for key in ("cause", "confidence", "summary")}
    found |= {"where": cause.get("where", {}), "outcome": result.get("outcome", "")}
    where = found["where"]
    answer = Answer(found["cause"], where.get("node"), where.get("rank"))
    calm = scene.fault.causes[0] in exercise.NOTHING and found["cause"] in ("", *QUIET)
    return found, calm or not exercise.wrong_with(scene.fault, answer)


def stay(made: Bench, show: Show) -> None:
    """Leaves the hosts up until a signal ends it."""
    show.say("The hosts stay until Ctrl-C. A shell on each, and the script that starts the engine there, as it is now:")
    for name in made.hosts.hosts:
        script = f"    ./{shell.start_script(made, name).name}" if name in takes(made) else ""
        show.say(f"  {shell.enter_words(made.hosts.record, name)}{script}")
    while True:
        time.sleep(3600)


def _verdict(fault: Fault, said: Said, took_s: float) -> str:
    used = f"{took_s / 60:.0f} min {took_s % 60:.0f} s" if took_s >= 60 else f"{took_s:.0f} s"
    counted = ", ".join(
        f"{number} {word}{'s' if number > 1 else ''}"
        for number, word in ((said.wrong, "wrong answer"), (said.hints, "hint"))
        if number
    )
    if said.right:
        return f"RIGHT, {used} after the start{', ' + counted if counted else ''}. The truth:"
    if said.over:
        return "The time is over. The truth:"
    if said.answer is not None and said.wrong:
        return f"{said.answer.cause}: {exercise.wrong_with(fault, said.answer)}. The truth:"
    return "Given up. The truth:"


def truth(fault: Fault) -> dict[str, Any]:
    """As data."""
    place = {"node": fault.node, "rank": fault.rank, "stages": list(fault.stages)}
    return {"causes": list(fault.causes), **place, "what": fault.what}


def _result(fault: Fault, seed: int, by: str, right: bool, **more: Any) -> dict[str, Any]:
    head = {"number": exercise.number_of(fault), "fault": fault.name, "shape": fault.shape, "seed": seed}
    code = Exit.OK if right else Exit.FINDING
    return {"schema": SCHEMA, "command": "drill", **head, "by": by, "right": right, **more, "exit": int(code)}
