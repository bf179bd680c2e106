"""Many names in few words: `fold(["gpu01", "gpu02", "gpu07"])` is `gpu[01-02,07]`, `ranks([0, 1, 2, 5])` is `0-2,5`. Standard library only."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Tuple

_NUMBER = re.compile(r"^(.*?)(\d{1,18})(\D*)$", re.S)


def ranks(numbers: Iterable[int]) -> str:
    """Sorted, without repetitions, as ranges.

    >>> ranks([3, 1, 2, 7])
    '1-3,7'
    """
    return ",".join(_ranges(sorted(set(numbers)), 0))


def order(numbers: Iterable[int]) -> str:
    """A sequence with its order kept, steps of one folded in both directions.

    >>> order([0, 1, 2, 3, 11, 10, 9])
    '0-3,11-9'
    """
    runs: List[List[int]] = []
    for number in numbers:
        step = runs[-1][1] - runs[-1][0] if runs and len(runs[-1]) == 2 else 0
        if runs and number - runs[-1][-1] in (1, -1) and (not step or (step > 0) == (number > runs[-1][-1])):
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(str(number) for number in run) for run in runs)


def counted(number: int, what: str) -> str:
    """A number of things, of which there may be one: `1 pair`, `2 pairs`, `1 more switch`, `2 more switches`.

    >>> counted(1, "node"), counted(2, "switch")
    ('1 node', '2 switches')
    """
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith(("s", "x", "ch", "sh")) else "s")


def fold(names: Iterable[str]) -> str:
    """Names as node sets: the last number of each name is folded where its width and the rest agree; others stay as they are.

    >>> fold(["gpu01", "gpu02", "gpu03", "login"])
    'gpu[01-03],login'
    """
    groups: Dict[Tuple[str, str, int], List[int]] = {}
    plain: List[str] = []
    for name in sorted(set(names)):
        match = _NUMBER.match(name)
        if match is None:
            plain.append(name)
            continue
        before, digits, after = match.groups()
        width = len(digits) if digits[0] == "0" else 0
        groups.setdefault((before, after, width), []).append(int(digits))
    _join_widths(groups)
    folded = [_group(before, after, width, sorted(numbers)) for (before, after, width), numbers in groups.items()]
    return ",".join(sorted(folded) + plain)


def _join_widths(groups: Dict[Tuple[str, str, int], List[int]]) -> None:
    """`gpu08 gpu09 gpu10`: the ten has no leading zero but the width of the others."""
    for before, after, width in [key for key in groups if key[2]]:
        rest = groups.get((before, after, 0))
        if not rest:
            continue
        same = [number for number in rest if len(str(number)) == width]
        groups[before, after, width] += same
        groups[before, after, 0] = [number for number in rest if len(str(number)) != width]
        if not groups[before, after, 0]:
            del groups[before, after, 0]


def _group(before: str, after: str, width: int, numbers: List[int]) -> str:
    ranges = list(_ranges(numbers, width))
    if len(numbers) == 1:
        return f"{before}{ranges[0]}{after}"
    return f"{before}[{','.join(ranges)}]{after}"


def _ranges(numbers: List[int], width: int) -> Iterable[str]:
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            first, last = str(numbers[start]).zfill(width), str(numbers[index - 1]).zfill(width)
            yield first if start == index - 1 else f"{first}-{last}"
            start = index
