"""Slow or stuck: what moved in the window, and whether that is work or a wait that spins."""

from __future__ import annotations

from typing import List, Optional

from ncdiag.model import Progress

BUSY = 0.2
"""CPU seconds per second of window from which a process is busy; a wait that polls stays well below."""
WOKEN = 0.02
"""CPU seconds per second of window of a rank that is woken by its peers now and then; one that waits for good (gloo, the
store, zmq) stayed at 0.01 and below in all recorded hangs, healthy ones at 0.04 and above."""
SPINNING = 0.5
"""From here on a wait may as well spin."""
MOVED_BYTES = 64 << 10
"""Bytes read, written or allocated in the window below which nothing moved; a heartbeat or a log line is less."""
HELPED_BYTES = 256 << 10
"""Bytes that a child moved in the window below which it does not work for its rank: one that only watches the machine reads less of /proc."""
HEARD_BYTES = 4 << 10
"""Bytes over a connection that it waits at in the window; below that they may be a sign of life."""
MOVED_FAULTS = 64
"""Page faults in the window below which no memory was touched anew."""


def cpu_share(progress: Progress) -> float:
    """CPU seconds per second of window; 1.0 is one core."""
    return progress.cpu_s / progress.window_s if progress.window_s > 0 else 0.0


def busy(progress: Optional[Progress]) -> bool:
    """Whether it computes."""
    if progress is None or progress.window_s <= 0:
        return False
    return (progress.cpu_s + progress.children_cpu_s) / progress.window_s >= BUSY


def computes(progress: Progress) -> bool:
    """Whether the CPU, and not what it waits for, sets its pace."""
    return cpu_share(progress) >= 0.7


def moves_data(progress: Optional[Progress]) -> bool:
    """Whether it reads, writes or takes memory: what no endless loop and no wait does."""
    if progress is None:
        return False
    read = max(progress.read_bytes, progress.rchar)
    return (
        read >= MOVED_BYTES
        or progress.written_bytes >= MOVED_BYTES
        or abs(progress.rss_bytes) >= MOVED_BYTES * 4
        or progress.page_faults >= MOVED_FAULTS
        or progress.children_bytes >= HELPED_BYTES
        or progress.heard_bytes >= HEARD_BYTES
        or progress.gpu_memory_bytes != 0
    )


def rate(progress: Optional[Progress]) -> str:
    """What moved, in words with units; empty where nothing was measured or nothing moved."""
    if progress is None or progress.window_s <= 0:
        return ""
    parts: List[str] = []
    share = progress.cpu_s / progress.window_s
    if share >= 0.01:
        parts.append(f"CPU {share * 100:.0f} %")
    if progress.children_cpu_s / progress.window_s >= BUSY:
        parts.append(f"its helpers {progress.children_cpu_s / progress.window_s * 100:.0f} %")
    if progress.children_bytes >= HELPED_BYTES:
        parts.append(f"a helper moves {progress.children_bytes / progress.window_s / 1e6:.1f} MB/s")
    read = progress.read_bytes if progress.read_bytes >= MOVED_BYTES else progress.rchar
    if 0 < progress.own_rchar < MOVED_BYTES and read < MOVED_BYTES:
        parts.append(f"reads {progress.own_rchar / progress.window_s:.0f} bytes a second")
    if progress.heard_bytes >= HEARD_BYTES:
        parts.append(f"{progress.heard_bytes / progress.window_s / 1e6:.3f} MB/s over the connection that it waits at")
    for amount, verb in (
        (read, "reads"),
        (progress.written_bytes, "writes"),
        (progress.rss_bytes, "memory grows"),
        (progress.gpu_memory_bytes, "GPU memory grows"),
    ):
        if amount >= MOVED_BYTES:
            parts.append(f"{verb} {amount / progress.window_s / 1e6:.1f} MB/s")
    if progress.gpu_utilisation:
        parts.append(f"GPU {progress.gpu_utilisation:.0f} %")
    return ", ".join(parts)
