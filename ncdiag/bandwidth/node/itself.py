"""What this rank's machine does without the network."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

from ncdiag.bandwidth.node.group import Group


def myself(group: Group, gpu: bool) -> Dict[str, Any]:
    """What this rank's machine does without the network: CPU work, and with `gpu` copying and multiplying there."""
    torch = group.torch
    stopped = throttled()
    wall, cpu, done = time.perf_counter(), time.process_time(), 0
    block = torch.ones(1 << 18)
    while time.perf_counter() - wall < 0.4:
        block.mul_(1.0).add_(0.0)
        done += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    facts: Dict[str, Any] = {
        "event": "self",
        "cpu_work_s": wall / done,
        "cpu_share": cpu / wall,
        "throttled": None if stopped is None else (throttled() or 0) - stopped,
    }
    if group.cuda and gpu:
        source = torch.empty(1 << 30, dtype=torch.uint8, device=group.device)
        target = torch.empty_like(source)
        a = torch.randn(8192, 8192, dtype=torch.bfloat16, device=group.device)
        facts["memory_gbytes_s"] = 2 * source.numel() / 1e9 / _median_of(group, lambda: target.copy_(source))
        facts["bf16_tflops"] = 2 * 8192**3 / 1e12 / _median_of(group, lambda: a @ a)
    return facts


def _median_of(group: Group, work: Callable[[], Any], count: int = 9) -> float:
    taken = []
    for _ in range(count):
        begin, end = group.torch.cuda.Event(enable_timing=True), group.torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        group.torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) / 1000)
    return sorted(taken)[count // 2]


def throttled() -> Optional[int]:
    """How often the CPU quota of this cgroup stopped it; None where no quota is told of (cpu.stat, nr_throttled)."""
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in groups:
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
            if controllers and "cpu" not in controllers.split(","):
                continue
            try:
                with open(root + path + "/cpu.stat") as file:
                    for line in file:
                        if line.startswith("nr_throttled"):
                            return int(line.split()[1])
            except (OSError, ValueError):
                continue
    return None
