"""Plain data as a person reads it: no braces, no quotes, units behind figures. Standard library only."""

from __future__ import annotations

import re
from typing import Any

UNITS = {
    "_gbytes_s": " GB/s",
    "_gbits_s": " Gb/s",
    "_bytes": " bytes",
    "_mib": " MiB",
    "_mhz": " MHz",
    "_ms": " ms",
    "_s": " s",
}
"""Ends of the names of figures -> the unit behind the figure."""
_FIELD = re.compile(r"[a-z]+(_[a-z]+)*")


def figure(value: Any, unit: str = "") -> str:
    """A bare number with its unit, bytes in the unit that people read; anything else as `in_words` has it.

    >>> figure(1024, "open files"), figure(35974299648, "bytes free"), figure(1500, "bytes"), figure([1], "GPUs")
    ('1024 open files', '33.5 GiB free', '1500 bytes', '1')
    """
    if not unit or isinstance(value, bool) or not isinstance(value, (int, float)):
        return in_words(value)
    counted, _, rest = unit.partition(" ")
    if counted == "bytes" and value >= 1 << 20:
        power, name = (30, "GiB") if value >= 1 << 30 else (20, "MiB")
        return f"{value / (1 << power):.1f} {name} {rest}".rstrip()
    return f"{value} {unit}"


def in_words(value: Any) -> str:
    """Lists and objects by their parts, what is inside something else in brackets; an object's fields that are None are left out.

    >>> in_words({"interface": "eth0", "max_error_s": 16.0, "error": None, "up": True, "hosts": [{"line": 3}, {"line": 7}]})
    'interface: eth0, max error: 16.0 s, up: yes, hosts: (line: 3; line: 7)'
    """
    return _words(value, nested=False)


def _words(value: Any, nested: bool = True) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, dict):
        shown = ", ".join(_field(str(key), item) for key, item in value.items() if item is not None) or "none"
        return f"({shown})" if nested else shown
    if not isinstance(value, (list, tuple, set, frozenset)):
        return str(value)
    simple = not any(isinstance(item, (list, tuple, dict)) for item in value)
    shown = (", " if simple else "; ").join(_words(item, nested=False) for item in value) or "none"
    return f"({shown})" if nested and (len(value) > 1 or not simple) else shown


def _field(name: str, value: Any) -> str:
    """Names of fields lose their underscores and their unit; names of nodes and variables stay."""
    if not _FIELD.fullmatch(name):
        return f"{name}: {_words(value)}"
    end = next((end for end in UNITS if name.endswith(end)), "")
    return f"{name[: len(name) - len(end)].replace('_', ' ')}: {_words(value)}{UNITS.get(end, '')}"
