"""What holds for all tests: labs keep to one worker and get a second try, generated examples have no time limit."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

ONE_AT_A_TIME = (
    "tests/lab/",
    "tests/stacks/test_live",
    "tests/bringup/",
    "tests/bandwidth/",
    "tests/hang_dump/",
    "tests/processes/",
)
"""With several workers (`-n`) these keep to one: two clusters at once on two cores would measure each other."""
MEASURED = ("tests/fleet/test_fanout",)
"""These measure how long many processes take: another try, where the machine was busy."""
SMALL = ("tests/lab/test_bringup_gloo", "tests/lab/test_reach")
"""These mostly wait: the other worker takes them while the first has the rest, and has its own tests afterwards."""

for _number in (
    signal.SIGINT,
    signal.SIGHUP,
):  # a shell in the background and nohup have them ignored, and programs inherit that
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        alone = item.nodeid.startswith(ONE_AT_A_TIME)
        if item.get_closest_marker("lab") or item.get_closest_marker("vllm") or alone:
            item.add_marker(pytest.mark.xdist_group("small" if item.nodeid.startswith(SMALL) else "lab"))
        elif not item.nodeid.startswith(MEASURED):
            continue
        # real clusters on a machine that others may load; a fault of the code fails three times
        item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=3))
