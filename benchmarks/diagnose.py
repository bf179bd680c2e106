"""How fast `diagnose` goes over a log, and with how much memory: python benchmarks/diagnose.py FILE (make one: benchmarks/nccl_log.py --keep FILE)

One process each, one core, best of three on a warm page cache: `grep -c 'NCCL INFO'`, the rules and readers alone, and the whole of `diagnose`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

RULES = """
from ncdiag.logs.intake import Intake
from ncdiag.logs.readers import Readers
from ncdiag.logs.rules import RULES
from ncdiag.logs.scan import Scanner, blocks_of
scanner = Scanner(RULES, Readers().all())
for stream in Intake().streams([{path!r}]):
    for first, block in blocks_of(stream.chunks):
        scanner.feed(stream.name, block, first)
"""
WHOLE = """
from ncdiag.logs.diagnose import diagnose
diagnose([{path!r}])
"""
MEASURE = """
import resource, time
start = time.process_time()
{code}
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def measured(code: str) -> tuple[float, int]:
    """CPU seconds and peak memory in MiB, the best of three."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", MEASURE.format(code=code)], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(3)
    ]
    return min(float(run[0]) for run in runs), max(int(run[1]) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    path = parser.parse_args().file
    size = os.path.getsize(path) / 1e6
    start = time.perf_counter()
    subprocess.run(["grep", "-c", "NCCL INFO", path], check=False)
    print(f"grep -c               {size / (time.perf_counter() - start):7.0f} MB/s")
    for name, code in (("rules and readers", RULES), ("diagnose", WHOLE)):
        seconds, memory = measured(code.format(path=path))
        print(f"{name:<20}  {size / seconds:7.0f} MB/s, {memory} MiB at most")


if __name__ == "__main__":
    main()
