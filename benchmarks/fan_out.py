"""What one command on many nodes costs the machine that starts it: real payload processes, started by the same fan-out as over SSH.

    python benchmarks/fan_out.py [--nodes 50 200] [--fanout 16] [--all]

Every "node" is a process of this machine with the whole payload in its standard input; `--all` collects with every probe instead of
three. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

from ncdiag import registry
from ncdiag.fleet.base import Request
from ncdiag.fleet.fanout import fan_out
from ncdiag.fleet.remote import command, outcome, pack

FEW = ("platform", "shm", "clock")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--fanout", type=int, default=16, help="processes at a time")
    parser.add_argument("--all", action="store_true", help="every probe, not three")
    options = parser.parse_args()
    os.environ["NCDIAG_FANOUT"] = str(options.fanout)
    probes = registry.load()
    request = Request(probes.sources(probes if options.all else FEW), node_timeout_s=120.0)
    packed = pack(request)
    print(
        f"{len(request.probes)} probes, payload {len(packed) / 1024:.0f} KiB, {options.fanout} at a time, {os.cpu_count()} cores\n"
    )
    print(
        "| nodes | answered | wall s | own CPU s | CPU s of the nodes | widest clock bound s |\n|---|---|---|---|---|---|"
    )
    for count in options.nodes:
        names = [f"node{number:04d}" for number in range(count)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started, own = time.monotonic(), time.process_time()
        answers = fan_out(names, command().replace("%", "%%"), packed, request.node_timeout_s, lambda node, probe: None)
        took, own = time.monotonic() - started, time.process_time() - own
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        nodes = [outcome(name, answer, request.node_timeout_s) for name, answer in answers.items()]
        good = [node for node in nodes if node.unreachable is None]
        theirs = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        bound = max((node.meta["clock"]["error_s"] for node in good), default=float("nan"))
        print(f"| {count} | {len(good)} | {took:.1f} | {own:.2f} | {theirs:.1f} | {bound:.3f} |")


if __name__ == "__main__":
    main()
