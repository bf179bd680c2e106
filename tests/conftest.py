"""With several workers (`-n`), the labs keep to one of them: two clusters at once on two cores would measure each other."""

from __future__ import annotations

import pytest

ONE_AT_A_TIME = (
    "tests/lab/",
    "tests/stacks/test_live",
    "tests/bringup/",
    "tests/bandwidth/",
    "tests/hang_dump/",
    "tests/processes/",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("lab") or item.get_closest_marker("vllm") or item.nodeid.startswith(ONE_AT_A_TIME):
            item.add_marker(pytest.mark.xdist_group("lab"))
