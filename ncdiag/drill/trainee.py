"""The one who is on call: reads what is typed until it is right, given up, or the time is over."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ncdiag.suggest import near

from . import exercise, screen
from .exercise import Answer
from .session import Scene

HELP = """Answer with a cause and, if you know it, its place: `rank-died`,
`rank-died b`, `rank-died rank 1`. Also:
  causes    every answer there is        hint      one more hint
  ncdiag    let ncdiag look at it now    give up   show the truth
  show      the call once more
"""


class TimeOver(Exception):
    """The time limit has passed."""


@dataclass
class Said:
    """What came of it."""

    answer: Answer | None = None
    """The last one; None when there was none."""
    right: bool = False
    wrong: int = 0
    """Answers that were not right."""
    hints: int = 0
    over: bool = False
    """Whether the time was over."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raises TimeOver in the block when the time is over. For the main thread."""

    def over(*_: Any) -> None:
        raise TimeOver

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Trainee:
    """`ask` returns a line or raises EOFError; `say` shows text."""

    def __init__(
        self, scene: Scene, seed: int, *, ask: Callable[[], str], say: Callable[[str], None], page: str
    ) -> None:
        self._scene, self._ask, self._say, self._page = scene, ask, say, page
        self._causes = screen.causes()
        self._hints = exercise.hints(scene.fault, seed)
        self.said = Said()

    def listen(self, seconds: float) -> Said:
        """Until it is over, one way or another."""
        words = {"causes": self._list, "hint": self._hint, "show": self._show, "ncdiag": self._ncdiag}
        self._say(HELP)
        try:
            with limit(seconds):
                while not self.said.right:
                    line = " ".join(self._ask().lower().split())
                    if line in ("give up", "giveup", "quit", "exit"):
                        break
                    if line in words:
                        words[line]()
                    elif line in ("", "help", "?"):
                        self._say(HELP)
                    else:
                        self._answer(line)
        except EOFError:
            pass
        except TimeOver:
            self.said.over = True
        return self.said

    def _answer(self, line: str) -> None:
        answer = exercise.read_answer(line, self._scene.made.hosts.hosts)
        if isinstance(answer, str):
            self._say(answer)
        elif answer.cause not in self._causes:
            alike = near(answer.cause, self._causes)
            self._say(f"there is no cause {answer.cause!r}" + (":" if not alike else "; did you mean:"))
            self._say(
                screen.titles(alike).rstrip("\n") if alike else "`causes` lists them; Enter says what else can be typed"
            )
        else:
            wrong = exercise.wrong_with(self._scene.fault, answer)
            self.said.answer, self.said.right = answer, not wrong
            if wrong:
                self.said.wrong += 1
                self._say(f"no: {wrong}. (hint, ncdiag and give up are there too)")

    def _list(self) -> None:
        self._say(screen.titles(self._causes).rstrip("\n"))

    def _hint(self) -> None:
        if self.said.hints < len(self._hints):
            self._say(self._hints[self.said.hints])
            self.said.hints += 1
        else:
            self._say("there is no further hint; `ncdiag` lets ncdiag look, `give up` shows the truth")

    def _show(self) -> None:
        self._say(self._page)

    def _ncdiag(self) -> None:
        arguments, host = self._scene.ncdiag(short=True)
        self._say(f"[drill {host}] ncdiag {' '.join(arguments)}    (up to half a minute)")
        self._say(self._scene.look()[1].rstrip("\n"))
