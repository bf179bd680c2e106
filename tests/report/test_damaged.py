"""Saved results with any part exchanged for anything: understood or refused in one sentence, never an exception of another kind."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncdiag.report import formats
from ncdiag.report.compare import compare
from ncdiag.report.read import Saved
from ncdiag.report.saved import result_of
from tests.report import samples
from tests.report.parsed import Page

WHOLE: dict[str, dict[str, Any]] = {
    "preflight": json.loads(json.dumps(dict(formats.data_of(samples.preflight(2))))),
    "hang": json.loads(json.dumps(dict(formats.data_of(samples.hang(4))))),
    "bringup": samples.bringup(4),
    "bandwidth": json.loads(json.dumps(samples.bandwidth(4))),
}
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def exchange(data: Any, picks: list[int], junk: Any, remove: bool) -> Any:
    """`data` with one part, found by going down along `picks`, exchanged or taken away."""
    data = copy.deepcopy(data)
    at: Any = data
    for step, pick in enumerate(picks):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return data
        key = keys[pick % len(keys)]
        if step == len(picks) - 1 or not isinstance(at[key], (dict, list)) or not at[key]:
            if remove:
                del at[key]
            else:
                at[key] = junk
            return data
        at = at[key]
    return data


@pytest.mark.parametrize("name", WHOLE)
@given(picks=st.lists(st.integers(0, 1000), min_size=1, max_size=8), junk=JUNK, remove=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_part_exchanged(name: str, picks: list[int], junk: Any, remove: bool) -> None:
    data = exchange(WHOLE[name], picks, junk, remove)
    try:
        result = result_of(data, "x.json")
    except ValueError as error:
        assert str(error)
        return
    old = result_of(WHOLE[name], "old.json")
    comparison = compare([old], [result], "old.json")
    for format_ in ("html", "junit", "prometheus"):
        text = formats.written([result], format_, comparison)
        if format_ == "html":
            Page(text)
    formats.as_text([Saved(result, data)], comparison, show_all=True, color=None)
    formats.as_json([Saved(result, data)], comparison, 0)


@given(junk=JUNK)
@settings(max_examples=200, deadline=None)
def test_no_result_at_all(junk: Any) -> None:
    with pytest.raises(ValueError):
        result_of(junk, "x.json")
