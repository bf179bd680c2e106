"""When a line was written, as far as it says so itself, and how much later it is than another one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

_HEAD = 160  # characters of a line in which a date is looked for
_CLOCK_HEAD = 48  # the same for a clock without a date: further on it is mostly a duration
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d|60)(?:[.,](?P<f>\d{1,9}))?(?![\d:<])"
_DATED = (
    re.compile(
        r"(?<!\d)(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T_ -]"
        + _CLOCK
        + r" ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?"
    ),
    re.compile(
        rf"\b(?P<name>{'|'.join(_MONTHS)}) +(?P<day>\d{{1,2}}),? (?:(?P<year>\d{{4}}),? )?"
        + _CLOCK
        + r"(?: (?P<late>\d{4})\b)?"
    ),
    re.compile(r"(?<![\d-])(?P<month>\d\d)-(?P<day>\d\d) " + _CLOCK),
    re.compile(r"\b[IWEF](?P<month>\d{1,2})(?P<day>\d\d) " + _CLOCK),
)
_BARE = re.compile(r"(?<![\d:.])" + _CLOCK)
"""Sources: ISO 8601 (containers, torch, NCCL's own), syslog and `dmesg -T`, vLLM's logger and glog, bare clocks of launchers."""

_DAY_S = 86400.0


@dataclass(frozen=True)
class Stamp:
    """One point in time, as a line says it."""

    seconds: float
    """Of the day; with a zone, in UTC."""
    month: int = 0
    """0: the line says no date."""
    day: int = 0
    year: int = 0
    """0: the line says none."""
    zoned: bool = False


def stamp(text: str) -> Stamp | None:
    """The first time in a line's head; None where it says none."""
    head = text[:_HEAD]
    if ":" not in head:
        return None
    found = [match for match in (pattern.search(head) for pattern in _DATED) if match]
    if found:
        return _dated(min(found, key=lambda match: match.start()))
    bare = _BARE.search(head[:_CLOCK_HEAD])
    return Stamp(_seconds(bare)) if bare else None


def _seconds(match: re.Match[str]) -> float:
    return int(match["h"]) * 3600.0 + int(match["m"]) * 60 + int(match["s"]) + float("0." + (match["f"] or "0"))


def _dated(match: re.Match[str]) -> Stamp | None:
    groups = match.groupdict()
    month = _MONTHS.index(groups["name"]) + 1 if "name" in groups else int(groups["month"])
    day, year = int(groups["day"]), int(groups.get("year") or groups.get("late") or 0)
    seconds, zone = _seconds(match), groups.get("zone")
    try:
        date(year or 2000, month, day)
        if not zone:
            return Stamp(seconds, month, day, year)
        at = datetime(year, month, day) + timedelta(seconds=seconds - _offset(zone))
    except (ValueError, OverflowError):
        return None
    return Stamp((at - datetime(at.year, at.month, at.day)).total_seconds(), at.month, at.day, at.year, True)


def _offset(zone: str) -> float:
    """Seconds that a zone's clocks are ahead of UTC."""
    if zone in ("Z", "UTC"):
        return 0.0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600.0 + int(zone[-2:]) * 60)


def later_s(one: Stamp, other: Stamp) -> float | None:
    """Seconds that `one` is later than `other`, negative where it is earlier; None where their forms cannot be compared."""
    if bool(one.month) != bool(other.month) or one.zoned != other.zoned:
        return None
    if not one.month:
        return one.seconds - other.seconds
    days = _ordinal(one, other.year) - _ordinal(other, one.year)
    return days * _DAY_S + one.seconds - other.seconds


def _ordinal(of: Stamp, year: int) -> int:
    """`year`: the other one's, for a stamp without."""
    try:
        return date(of.year or year or 2000, of.month, of.day).toordinal()
    except ValueError:  # 29 February of a year that has none
        return date(of.year or year, of.month, of.day - 1).toordinal()
