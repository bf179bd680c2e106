from __future__ import annotations

from typing import Any

import pytest

from tests.probes.machines import Machine, eight_rails, graver, judged, statuses
from tests.probes.smi import addresses, with_gpus

GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq"


def machine(name: str = "node1", **changes: Any) -> Machine:
    return with_gpus(eight_rails(name), addresses(), **changes)


def test_idle_and_power_capped_gpus_are_fine() -> None:
    assert statuses(judged("gpu-clocks", machine(throttle=("gpu_idle", "sw_power_cap")))) == ["ok"]


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"throttle": ("hw_thermal_slowdown", "hw_slowdown"), "temperature": 91}, "at 91 °C"),
        ({"throttle": ("hw_power_brake_slowdown",)}, "power supply"),
        ({"limit": 500}, "power limit 500 W, the default is 700 W"),
        ({"application": 1200}, "application clock set to 1200 MHz"),
        ({"persistence": "Disabled"}, "persistence mode is off on GPU 3"),
    ],
)
def test_held_down(odd: dict[str, Any], words: str) -> None:
    (finding,) = graver(judged("gpu-clocks", machine(odd={3: odd})))
    assert words in finding.summary and finding.cause == "gpu-throttled"


@pytest.mark.parametrize(
    ("governor", "driver", "status"),
    [("powersave", "acpi-cpufreq", "warn"), ("powersave", "intel_pstate", "ok"), ("performance", "acpi-cpufreq", "ok")],
)
def test_governor(governor: str, driver: str, status: str) -> None:
    node = machine().file(f"{GOVERNOR}/scaling_governor", governor).file(f"{GOVERNOR}/scaling_driver", driver)
    assert statuses(judged("gpu-clocks", node)) == [status]


def test_nodes_that_differ() -> None:
    findings = graver(judged("gpu-clocks", machine("a"), machine("b"), machine("c", clock=1755)))
    assert [finding.where["node"] for finding in findings] == ["c"]


def test_without_gpus() -> None:
    assert statuses(judged("gpu-clocks", Machine())) == ["skip"]
