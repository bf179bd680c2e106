"""Logs that end while the same is tried again and again: what works up to there does not work now, and what is retried is the thing to look at.

Words of loggers of any software; what a rule knows by its own wording is told by that rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import TEXT_LIMIT, bare, speaker
from ncdiag.logs.readers import Readers
from ncdiag.logs.stamps import later_s, stamp
from ncdiag.model import Evidence

TAIL = 12  # lines at the end of a source that are looked at
TIMES = 3  # such lines, at least, that differ in numbers only
NEAR = 3  # one of the last so many lines is such a one
_TEXT = 160  # characters of one that tell which it is

_TRIES = re.compile(
    r"(?i)\bre-?try(?:ing)?\b|\bretries\b|\btry(?:ing)? again\b|\b(?:still )?waiting (?:for|to|on|until)\b|\bre-?connect(?:ing|ion)?\b|\battempt(?:s|ing)?\b"
    r"|\bheart-?beats?\b.*\b(?:miss|fail|time|late|lost|no |not |ago)|\b(?:miss\w*|lost|no|late) heart-?beats?\b"
    r"|\b(?:health|liveness|readiness|startup)[ -_]?(?:z|checks?|probes?)?\b.*\b(?:fail|unhealthy|not |timed|refused)|\bnot (?:yet )?(?:ready|respond)"
    r"|\"GET /\w*(?:health|ready|live|ping)\w*\S* HTTP/[\d.]+\" 5\d\d|\b(?:is )?unreachable\b"
)
_COUNTED = re.compile(r"\(x\d+ over |\b(?:succeeded|successful|after \d+ (?:retries|attempts): ok)\b")
"""A table of what was once, and what came to a good end."""
_SHAPE = re.compile(
    r"(?i)(?P<who>\b(?:local_?rank|rank|worker|node|process|gpu|device|host|pod|replica|member)s?[ _:=#-]{0,2}\d+)|[\d.:-]*\d[\d.:-]*"
)
"""Numbers; those that tell one rank from another are none."""
BURST_S = 2.0
"""Seconds in which many processes say the same at once; who tries again waits for longer."""

_FITS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"(?i)\bgcs\b|ray head|:6379\b"), ("ray-gcs-unreachable", "ray-node-lost")),
    (re.compile(r"(?i)placement group|resources?\b"), ("ray-resources-infeasible", "ray-placement-group-leaked")),
    (
        re.compile(r"(?i)store\b|rendezvous|c10d|master|barrier"),
        ("bootstrap-peer-unreachable", "rank-missing", "bootstrap-blocked-firewall"),
    ),
    (re.compile(r"(?i)heart-?beat"), ("rank-died", "rank-stuck-outside-collective", "ray-node-lost")),
    (re.compile(r"(?i)health|liveness|readiness|probe|/ping|not (?:yet )?ready"), ("rank-stuck-outside-collective", "engine-exception", "slow-not-hung")),
    (re.compile(r"(?i)\block\b|baton"), ("rank-stuck-outside-collective",)),
    (re.compile(r"(?i)resolv|\bdns\b|name look"), ("dns-unresponsive",)),
    (re.compile(r"(?i)download|fetch|s3\b|hugging|hub\b|checkpoint|upload|\bnfs\b|mount|disk|read(?:ing)? "), ("storage-slow", "dns-unresponsive")),
    (re.compile(r"(?i)\b(?:ranks?|nodes?|workers?|peers?|engines?)\b"), ("rank-missing", "rank-died", "slow-load-peer-timeout")),
)  # fmt: skip
"""What is tried -> what that usually is, the first that fits."""
_ELSE = ("bootstrap-peer-unreachable", "rank-missing", "rank-died")


@dataclass(frozen=True)
class _Try:
    text: str
    shape: str
    number: int
    order: float


class Trying:
    """The last lines of each source, where they try something again."""

    def __init__(self) -> None:
        self._found: dict[str, list[_Try]] = {}

    def look(self, source: str, end: bytes, first: int, start: float) -> None:
        """`end`: the last lines of a source, the first of which has number `first`; `start` and its number make the order of one."""
        last = first + end.count(b"\n")
        lines = [line.rpartition("\r")[2] for line in end.decode("utf-8", "replace").split("\n")[-2 * TAIL :]]
        told = [(text, last - back) for back, text in enumerate(reversed(lines)) if text.strip()][:TAIL]
        if not any(_tries(text) for text, _ in told[:NEAR]):
            return
        tries = [_Try(text, _shape(text), number, start + number) for text, number in told if _tries(text)]
        same = [one for one in tries if one.shape == tries[0].shape][::-1]
        if len(same) >= TIMES and not _at_once(same[0].text, same[-1].text):
            self._found[source] = same

    def signals(self, signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
        """One for each source that does nothing else any more, and of which no other signal says what went wrong."""
        told = {item.source for signal in signals if not signal.condition for item in signal.evidence}
        for source, tries in self._found.items():
            since = [one for one in tries if one.order > readers.worked_last(source)]
            if source in told or len(since) < TIMES or readers.life.went_on(source, since[0].order):
                continue
            first = since[0]
            yield Signal(
                "",
                Says.SYMPTOM,
                f"{source} ends while the same is tried again and again: {bare(first.text).strip()[:_TEXT]}",
                [Evidence(source, one.text.strip()[:TEXT_LIMIT], one.number) for one in (first, since[-1])],
                speaker(first.text),
                order=first.order,
                candidates=next((names for words, names in _FITS if words.search(first.text)), _ELSE),
            )


def _tries(text: str) -> bool:
    return _TRIES.search(text[:TEXT_LIMIT]) is not None and _COUNTED.search(text[:TEXT_LIMIT]) is None


def _shape(text: str) -> str:
    """What it says, without numbers, and who says it."""
    said = _SHAPE.sub(lambda found: found["who"] or "", bare(text)[:_TEXT])
    return f"{sorted(speaker(text).items())} {said}"


def _at_once(first: str, last: str) -> bool:
    begin, end = stamp(first), stamp(last)
    apart = later_s(end, begin) if begin is not None and end is not None else None
    return apart is not None and 0 <= apart < BURST_S
