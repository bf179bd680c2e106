"""Whether what was read from a file has the types that its dataclass declares: a bundle may come from anywhere. Standard library only."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import (
    Any,
    Callable,
    Dict,
    Mapping,
    Optional,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

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


def unlike(value: Any, wanted: Any, at: str = "") -> Optional[str]:
    """Where JSON differs from the type that it was made of, in words; None where it fits. A key that may be None and is missing gets None.

    >>> from typing import List
    >>> unlike([1, "x"], List[int])
    "[1] is 'x', no int"
    """
    if is_typeddict(wanted):
        return _unlike_dict(value, wanted, at)
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is Union:
        told = [unlike(value, part, at) for part in parts]
        return None if None in told else told[0]
    if origin in (list, dict) and isinstance(value, origin):
        for key, one in value.items() if origin is dict else enumerate(value):
            found = unlike(one, parts[-1], "%s[%.40s]" % (at, key))
            if found:
                return found
        return None
    if origin is tuple and isinstance(value, list):
        return None  # JSON has no tuples; their parts are few
    return (
        None
        if _fits(value, wanted)
        else "%s is %.40r, no %s" % (at or "it", value, getattr(wanted, "__name__", wanted))
    )


Check = Callable[[Any], bool]
_CHECKS: Dict[Any, Check] = {}


def fits(value: Any, wanted: Any) -> bool:
    """Whether `unlike` has nothing to say, much faster: facts of a thousand nodes are many values. Missing keys get None, as there."""
    if wanted not in _CHECKS:
        _CHECKS[wanted] = _check(wanted)
    return _CHECKS[wanted](value)


def _check(wanted: Any) -> Check:
    origin, parts = get_origin(wanted), get_args(wanted)
    if is_typeddict(wanted):
        fields_of = [(key, _check(kind), _fits(None, kind)) for key, kind in _hints(wanted).items()]

        def as_dict(value: Any) -> bool:
            if type(value) is not dict:
                return False
            for key, check, may_miss in fields_of:
                if key not in value:
                    if not may_miss:
                        return False
                    value[key] = None
                elif not check(value[key]):
                    return False
            return True

        return as_dict
    if origin is Union:
        checks = [_check(part) for part in parts if part is not type(None)]
        if len(checks) == 1 and len(parts) == 2:
            return lambda value: value is None or checks[0](value)
        return lambda value: any(check(value) for check in checks)
    if origin is list:
        of_item = _check(parts[0])
        return lambda value: type(value) is list and all(map(of_item, value))
    if origin is dict:
        of_value = _check(parts[1])
        return lambda value: type(value) is dict and all(map(of_value, value.values()))
    if wanted in (str, bool):
        return lambda value: type(value) is wanted
    if wanted is int:
        return lambda value: type(value) is int and -LARGEST < value < LARGEST
    if wanted is Any:
        return lambda value: True
    return lambda value: unlike(value, wanted) is None


def _unlike_dict(value: Any, wanted: Any, at: str) -> Optional[str]:
    if not isinstance(value, dict):
        return "%s is %.40r, no %s" % (at or "it", value, wanted.__name__)
    for key, kind in _hints(wanted).items():
        if key not in value:
            if not _fits(None, kind):
                return "%s has no %s" % (at or "it", key)
            value[key] = None
        found = unlike(value[key], kind, "%s.%s" % (at, key) if at else key)
        if found:
            return found
    return None


def _fits(value: Any, wanted: Any) -> bool:
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return True
    if wanted is type(None):
        return value is None
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
