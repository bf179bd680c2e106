"""Python tracebacks: the first exception among all processes, when no rule knows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line, speaker

_LAST = re.compile(
    r"(?:^|[\s\]|])(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|NotMet|Dead|Fault))(?:: (?P<text>.*))?$"
)
_DOTTED = re.compile(r"(?:^|[\s\]|])(?P<type>(?:[a-z_]\w*\.)+[A-Z]\w+): (?P<text>.*)$")
"""The last line of a traceback whose class is not called an error: `triton.runtime.errors.OutOfResources: …`."""
_ENDINGS = ("Error", "Exception", "Interrupt", "Exit", "NotMet", "Dead", "Fault")
_FRAME = re.compile(r"File \"(?P<file>[^\"]+)\", line \d+, in (?P<function>\S*)")
_LOOKS_UP = ("__getattr__", "__getattribute__")
"""Functions that only say no to who asked them: torch's modules, starlette's state, lazy modules."""
_CASCADE = re.compile(
    r"SignalException|WorkerProc initialization failed|Engine core initialization failed|Engine process failed to start|EngineDead|RayTaskError|RayActorError|ActorDied|ActorHandleNotFound|ChildFailed|SystemExit|"
    r"KeyboardInterrupt|CancelledError|BrokenPipe|ConnectionReset|DistBackendError|DistNetworkError|DistStoreError|NCCL error|TimeoutError|EOFError|Connection closed by|"
    r"RendezvousConnection|RendezvousClosed|cancelled|GetTimeoutError|zmq|closed|See stack trace|RuntimeError: Engine"
)
_SURPRISES = ("AttributeError", "UnboundLocalError", "NameError", "IndexError", "RecursionError")
"""Types that no check raises on purpose: inside the framework's own code they are its bug."""
_BUG_TYPES = (
    "AttributeError",
    "AssertionError",
    "UnboundLocalError",
    "NotImplementedError",
    "TypeError",
    "IndexError",
    "KeyError",
    "NameError",
    "RecursionError",
)
LINES_LIMIT = 400  # of one traceback


def _last(text: str) -> re.Match[str] | None:
    """A line that can be the last one of a traceback. Most lines do not hold the words, which is known faster."""
    for word in _ENDINGS:
        if word in text:
            return _LAST.search(text.rstrip())
    return None


class Exceptions:
    """The last line of each traceback."""

    triggers = ("Traceback (most recent call last)", "Error: ", "Exception: ", 'File "')

    def __init__(self) -> None:
        self._found: list[tuple[Line, str, str, str]] = []
        self._bare: list[tuple[Line, str, str, str]] = []
        self._left = 0
        self._file = ""
        self.known: set[tuple[str, float]] = set()
        """`(source, order)` of lines that a rule knows."""
        self.caught: Callable[[str, float], bool] = lambda source, order: False
        """Whether the run of a source went on after an order."""

    def take(self, line: Line) -> bool:
        text = line.text
        if self.triggers[0] in text:
            self._left, self._file = LINES_LIMIT, ""
            return True
        if self._left <= 0 and not self._file and (frame := _FRAME.search(text)):  # its heading is cut off
            self._left, self._file = LINES_LIMIT, frame["file"]
            return True
        if self._left <= 0 and not self._file:
            match = _last(text)
            if match and len(self._bare) < 50:
                self._bare.append((line, match["type"].rsplit(".", 1)[-1], (match["text"] or "").strip(), ""))
            return False
        self._left -= 1
        frame = _FRAME.search(text)
        if frame:
            if not self._file or frame["function"] not in _LOOKS_UP:
                self._file = frame["file"]
        elif self._file:
            match = _last(text) or (_DOTTED.search(text.rstrip()) if ": " in text else None)
            if match:
                if len(self._found) < 100:
                    self._found.append(
                        (line, match["type"].rsplit(".", 1)[-1], (match["text"] or "").strip(), self._file)
                    )
                self._left, self._file = 0, ""
                return False
        return self._left > 0

    def end(self, source: str) -> None:
        self._left, self._file = 0, ""

    def own(self) -> list[tuple[Line, str, str, str]]:
        """Exceptions that neither follow from another process's nor are known to a rule, nor were caught: line, type, text, file."""
        return self._unknown(self._found)

    def _unknown(self, found_lines: list[tuple[Line, str, str, str]]) -> list[tuple[Line, str, str, str]]:
        return [
            found
            for found in found_lines
            if not _CASCADE.search(found[1] + ": " + found[2])
            and (found[0].source, found[0].order) not in self.known
            and not self.caught(found[0].source, found[0].order)
        ]

    def signals(self) -> Iterator[Signal]:
        own = self.own()
        if not own:
            for line, kind, text, _ in self._unknown(self._bare)[:1]:
                if kind in _SURPRISES:
                    yield Signal(
                        "framework-version-bug",
                        Says.HINT,
                        f"{kind}: {text[:160]}",
                        [line.evidence()],
                        speaker(line.shown),
                        order=line.order - 0.5,
                    )
                yield Signal(
                    "engine-exception",
                    Says.HINT,
                    f"an exception without its traceback: {kind}: {text[:160]}",
                    [line.evidence()],
                    speaker(line.shown),
                    order=line.order,
                )
            return
        line, kind, text, file = min(own, key=lambda found: found[0].order)
        summary = f"the first exception is {kind}" + (f": {text[:160]}" if text else "")
        yield Signal("engine-exception", Says.STRONG, summary, [line.evidence()], speaker(line.shown), order=line.order)
        if kind in _BUG_TYPES and re.search(
            r"/(?:vllm|sglang|ray|torch|transformers|flashinfer|xformers|deepspeed|megatron)/", file
        ):
            bug = kind in _SURPRISES or (kind == "AssertionError" and not text)
            yield Signal(
                "framework-version-bug",
                Says.STRONG if bug else Says.HINT,
                f"{kind} inside the framework's own code ({file.rsplit('site-packages/', 1)[-1].rsplit('dist-packages/', 1)[-1]})",
                [line.evidence()],
                speaker(line.shown),
                order=line.order - 0.5 if bug else line.order + 0.5,
            )
