"""How long ncdiag takes to start, and what a local preflight costs, against references in the same run.

    python benchmarks/startup.py [--rounds 15]

`--help` is compared with an interpreter that imports click and rich only; its CPU time is the sum of user and system time of
the process and its children. Prints Markdown for benchmarks/startup.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys

REFERENCE = [sys.executable, "-c", "import click, rich.console, rich.text"]
HELP = [sys.executable, "-m", "ncdiag", "--help"]
PREFLIGHT = [sys.executable, "-m", "ncdiag", "preflight", "--format", "json"]


def cpu_seconds(command: list[str]) -> float:
    """User plus system time of one run."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    samples: dict[str, list[float]] = {"reference": [], "help": [], "preflight": []}
    for _ in range(rounds):
        samples["reference"].append(cpu_seconds(REFERENCE))
        samples["help"].append(cpu_seconds(HELP))
        samples["preflight"].append(cpu_seconds(PREFLIGHT))
    median = {name: statistics.median(values) for name, values in samples.items()}
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, median of {rounds} interleaved rounds\n")
    print("| what | CPU s | against the reference |\n|---|---|---|")
    print(f"| `python -c 'import click, rich…'` (reference) | {median['reference']:.3f} | 1.0 |")
    print(f"| `ncdiag --help` | {median['help']:.3f} | {median['help'] / median['reference']:.2f} |")
    print(
        f"| `ncdiag preflight` on this machine | {median['preflight']:.3f} | {median['preflight'] / median['reference']:.1f} |"
    )


if __name__ == "__main__":
    main()
