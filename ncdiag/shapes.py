"""Whether what was read from a file has the types that its dataclass declares: a bundle may come from anywhere. Standard library only."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, Dict, Mapping, Optional, Union, get_args, get_origin, get_type_hints

LARGEST = 1 << 63
"""Integers beyond it are no count, size or pid of any machine."""


def fault(thing: Any) -> Optional[str]:
    """The first field of a dataclass, or of one below it, whose value is of another type than declared: `pid is 'x', no int`.

    >>> from ncdiag.model import Frame
    >>> fault(Frame("main", "a.py", 3)), fault(Frame("main", "a.py", "x"))
    (None, "line is 'x', no int")
    """
    for one in fields(thing):
        value, wanted = getattr(thing, one.name), _hints(type(thing))[one.name]
        if not _fits(value, wanted):
            return "%s is %.40r, no %s" % (one.name, value, getattr(wanted, "__name__", wanted))
        for below in value if isinstance(value, list) else [value]:
            deeper = fault(below) if is_dataclass(below) else None
            if deeper:
                return "%s: %s" % (one.name, deeper)
    return None


_KNOWN: Dict[type, Dict[str, Any]] = {}


def _hints(of: type) -> Dict[str, Any]:
    if of not in _KNOWN:
        _KNOWN[of] = get_type_hints(of)
    return _KNOWN[of]


def _fits(value: Any, wanted: Any) -> bool:
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return True
    if origin is Union:
        return any(_fits(value, part) for part in parts)
    if origin in (list, tuple):
        return isinstance(value, (list, tuple)) and all(_fits(item, parts[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
    if wanted in (int, float):
        number = isinstance(value, (int, wanted)) and (isinstance(value, float) or abs(value) < LARGEST)
        return number and math.isfinite(value)
    return isinstance(value, wanted if isinstance(wanted, type) else object)
