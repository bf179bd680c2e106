"""GPUs run at the clocks they could, alike on all nodes, and the CPUs are not held down.

One GPU that is throttled by heat or a power brake sets the pace of the whole engine: every collective waits for it. A limit that
somebody left set, or persistence mode off (the driver then starts each GPU anew), look like a slow network.

Source: nvidia-smi -q -x (clocks_event_reasons, power and clock limits); /sys/devices/system/cpu/cpu0/cpufreq.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, TypedDict

from ncdiag.host import Host
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl.sysfs import word
from ncdiag.nccl.uneven import uneven
from ncdiag.nodeset import counted

HELD_DOWN = {
    "hw_slowdown": "the hardware slows it down",
    "hw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "the power supply asks it to",
    "sw_thermal_slowdown": "hot: the driver slows it down",
}
"""Reasons that are never wanted. `gpu_idle` and `sw_power_cap` under load are usual."""

LIMIT_SHARE = 0.95  # of the default power limit; below it somebody set it lower
OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose `powersave` still clocks up under load."""


class Facts(TypedDict):
    governor: Optional[str]  # scaling_governor of cpu0; None: no cpufreq here
    scaling_driver: Optional[str]


def collect(host: Host) -> Facts:
    host.list("/sys")  # without it nothing can be said
    base = "/sys/devices/system/cpu/cpu0/cpufreq"
    return {"governor": word(host, f"{base}/scaling_governor"), "scaling_driver": word(host, f"{base}/scaling_driver")}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    tops: Dict[str, List[Any]] = {}
    for node, facts in snapshot.each("gpus"):
        gpus = facts["gpus"]
        if not gpus:
            yield skip("no GPU that could be asked", node, source="nvidia-smi -q -x")
            continue
        problems = [finding for gpu in gpus for finding in _gpu(node, gpu)]
        problems += _persistence(node, gpus)
        problems += _governor(node, snapshot.facts(node, PROBE.id))
        yield from problems
        known = [gpu for gpu in gpus if gpu["power_limit_w"] or gpu["sm_clock_max_mhz"]]
        tops[node] = sorted({(gpu["name"], gpu["power_limit_w"], gpu["sm_clock_max_mhz"]) for gpu in known}, key=str)
        untold = sum(gpu["throttle"] is None for gpu in gpus)
        if untold:
            yield unknown(
                f"the driver does not tell what holds {counted(untold, 'GPU')} down", node, source="nvidia-smi -q -x"
            )
        elif not problems:
            yield ok(f"{counted(len(gpus), 'GPU')}, none held down", node, source="nvidia-smi -q -x")
    yield from _unequal(tops)


def _gpu(node: str, gpu: Mapping[str, Any]) -> Iterator[Finding]:
    name = f"GPU {gpu['index']} ({gpu['busid']})"
    where: Dict[str, Any] = {"source": "nvidia-smi -q -x", "device": gpu["busid"], "cause": "gpu-throttled"}
    reasons = [reason for reason in gpu["throttle"] or [] if reason in HELD_DOWN]
    if reasons:
        heat = f" at {gpu['temperature_c']} °C" if gpu["temperature_c"] is not None else ""
        yield warn(
            f"{name}: clocks held down{heat}: {'; '.join(HELD_DOWN[reason] for reason in reasons)}",
            node,
            observed=reasons,
            remedy="check fans, air flow, power cables and the rack's power budget",
            **where,
        )
    limit, default = gpu["power_limit_w"], gpu["default_power_limit_w"]
    if limit and default and limit < LIMIT_SHARE * default:
        yield warn(
            f"{name}: power limit {limit:g} W, the default is {default:g} W",
            node,
            observed=limit,
            unit="W",
            expected=default,
            remedy=f"nvidia-smi -i {gpu['index']} -pl {default:g}, unless it is meant",
            **where,
        )
    clock, usual = gpu["application_clock_mhz"], gpu["default_application_clock_mhz"]
    if clock and usual and clock < usual:
        yield warn(
            f"{name}: application clock set to {clock} MHz, the default is {usual} MHz",
            node,
            observed=clock,
            unit="MHz",
            expected=usual,
            remedy=f"nvidia-smi -i {gpu['index']} -rac",
            **where,
        )


def _persistence(node: str, gpus: List[Mapping[str, Any]]) -> Iterator[Finding]:
    off = [str(gpu["index"]) for gpu in gpus if gpu["persistence"] is False]
    if off:
        yield warn(
            f"persistence mode is off on GPU {', '.join(off)}: the driver starts them anew for every first user",
            node,
            source="nvidia-smi -q -x",
            observed="off",
            expected="on",
            cause="gpu-throttled",
            remedy="start nvidia-persistenced, or nvidia-smi -pm 1",
        )


def _governor(node: str, facts: Optional[Facts]) -> Iterator[Finding]:
    if facts and facts["governor"] in ("powersave", "conservative") and facts["scaling_driver"] not in OWN_GOVERNORS:
        yield warn(
            f"CPU governor {facts['governor']} ({facts['scaling_driver']}): NCCL's threads run at the lowest clock",
            node,
            source="/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            observed=facts["governor"],
            expected="performance",
            cause="gpu-throttled",
            remedy="cpupower frequency-set -g performance",
        )


def _unequal(tops: Dict[str, List[Any]]) -> Iterator[Finding]:
    shown = {
        node: "; ".join(f"{name} {watts} W {clock} MHz" for name, watts, clock in top) for node, top in tops.items()
    }
    yield from uneven(
        warn,
        shown,
        "limits differ from the other nodes: {own}; there {others}",
        source="nvidia-smi -q -x",
        cause="gpu-throttled",
        remedy="set power limits and clocks alike on all nodes",
    )


PROBE = Probe("gpu-clocks", "GPUs are not held down", judge, collect, needs=("gpus",))
