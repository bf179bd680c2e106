"""The kernel's words on a program that is none of the job's.

Source: Linux mm/oom_kill.c ("Killed process", "oom-kill:constraint=", "oom_reaper: reaped process").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.readers import Readers

_VICTIM = re.compile(
    r"[Kk]illed process \d+ \((?P<name>[^)\n]{1,64})\)|reaped process \d+ \((?P<reaped>[^)\n]{1,64})\)|\btask=(?P<task>[^,\s]{1,64}),pid="
)
_KERNEL = re.compile(r"oom-kill:|oom_reaper|invoked oom-killer|[Oo]ut of memory: [Kk]illed|Memory cgroup out of memory")
_SERVICE = re.compile(
    r"(?i)exporter|prometheus|telegraf|collectd|fluent|filebeat|vector$|promtail|otel|datadog|zabbix|dcgm|nginx|sshd|cron|rsyslog|journald|kubelet|containerd|dockerd"
)
_OF_JOBS = re.compile(
    r"(?i)python|vllm|ray|gcs_server|pt_|torch|sglang|trt|mpi|orted|nccl|_perf|train|infer|serve|worker|engine|^(?:ba|da)?sh$|srun|slurm"
)


def other_programs(signals: Sequence[Signal], readers: Readers) -> None:
    """The kernel ended another program than the job's in that program's own memory group, or one beside a job that works: no fault of the job."""
    by_source: dict[str, list[Signal]] = {}
    for signal in signals:
        if signal.cause == "host-memory-oom" and signal.evidence:
            by_source.setdefault(signal.evidence[0].source, []).append(signal)
    for here in by_source.values():
        texts = [signal.evidence[0].text for signal in here]
        names = {name for text in texts for match in _VICTIM.finditer(text) for name in match.groups() if name}
        grouped = any("MEMCG" in text or "cgroup" in text for text in texts)
        service = grouped and all(_SERVICE.search(name) for name in names)
        beside = bool(readers.proofs()) and not any(_OF_JOBS.search(name) for name in names)
        for signal in here if names and (service or beside) else ():
            if _KERNEL.search(signal.evidence[0].text):
                signal.says, signal.condition = min(signal.says, Says.HINT), True
                signal.summary = f"the kernel ended {', '.join(sorted(names)[:4])} for its memory, which is no process of the job as far as its name says"
