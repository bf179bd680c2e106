"""How a stack is matched: a rule names the frames that must all be there, by function and by pieces of the path."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import FrozenSet, Iterable, Optional, Sequence, Tuple

from ncdiag.model import Frame

_TAIL = re.compile(r"[(<].*$")


@functools.lru_cache(maxsize=4096)
def function(name: str) -> str:
    """The bare name of a function: `wait_for_ready` of `WorkerProc.wait_for_ready`, `waitForWorkers` of C++."""
    bare = re.sub(r"\.<locals>|\(anonymous namespace\)|\[clone [^]]*\]|@.*$", "", name).strip()
    if bare.startswith("<"):
        return bare
    return re.split(r"::|\.", _TAIL.sub("", bare))[-1].strip()


@dataclass(frozen=True)
class Rule:
    """A stack belongs to `stage` when every one of `frames` is found in it, in any order."""

    stage: str
    waiting: Optional[str]
    """What is waited for in it (`order.WAITING`); None where the innermost frames must say it."""
    frames: Tuple[str, ...]
    """`function@path`: `*` in the path stands for anything, an empty path for every file; `~function` a native one, `~Class::function`
    one of a class whose name ends so; `*` as the function stands for any function of that file, but not while a module is imported."""
    detail: str = ""

    @functools.cached_property
    def names(self) -> FrozenSet[str]:
        """Functions that a stack must have for the rule to fit."""
        functions = (pattern.partition("@")[0].lstrip("~") for pattern in self.frames)
        return frozenset(name.rpartition("::")[2] for name in functions) - {"*"}

    def find(self, stack: Sequence[Frame]) -> Optional[Frame]:
        """The frame of the first pattern, None unless all patterns are there."""
        if self.frames[0].startswith("*") and any(frame.name == "_find_and_load" for frame in stack):
            return None
        found = [next((frame for frame in stack if _fits(pattern, frame)), None) for pattern in self.frames]
        return found[0] if all(found) else None


def _fits(pattern: str, frame: Frame) -> bool:
    if pattern.startswith("~"):
        if "::" in pattern:
            return _native(frame) and _TAIL.sub("", frame.name).endswith(pattern[1:])
        return _native(frame) and function(frame.name) == pattern[1:]
    name, _, path = pattern.partition("@")
    if name not in ("*", frame.name) and function(frame.name) != name:
        return False
    return not path or _path_fits(path, frame.file)


def _path_fits(pattern: str, file: str) -> bool:
    position = 0
    for piece in pattern.split("*"):
        position = file.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return True


def _native(frame: Frame) -> bool:
    return frame.native or frame.file.rstrip("0123456789.").endswith(".so") or ".so." in frame.file


def first(rules: Iterable[Rule], stack: Sequence[Frame]) -> Optional[Tuple[Rule, Frame]]:
    """The first rule that fits, with the frame that it rests on."""
    names = {frame.name for frame in stack} | {function(frame.name) for frame in stack}
    for rule in rules:
        frame = rule.find(stack) if rule.names <= names else None
        if frame is not None:
            return rule, frame
    return None
