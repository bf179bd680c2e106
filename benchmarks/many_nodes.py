"""How judging and reporting grow with the number of nodes, on snapshots made from one real machine.

    python benchmarks/many_nodes.py [--nodes 100 1000 10000]

Every node is this machine's own facts under another name; one in a hundred has another kernel, one in two hundred a full
/dev/shm, one in five hundred did not answer. Prints Markdown for benchmarks/many-nodes.md.
"""

from __future__ import annotations

import argparse
import copy
import platform
import time

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Host
from ncdiag.model import NodeFacts, Snapshot
from ncdiag.report.console import findings_as_text
from ncdiag.report.json import findings_as_json


def snapshot(base: NodeFacts, count: int) -> Snapshot:
    nodes = {}
    for number in range(count):
        name = f"gpu{number:05d}"
        node = copy.deepcopy(base)
        node.node = name
        if number % 100 == 7:
            node.facts["platform"]["kernel"] = "5.15.0-other"
        if number % 200 == 11:
            node.facts["shm"]["free_bytes"] = 1 << 20
        if number % 500 == 13:
            node = NodeFacts(name, unreachable="no answer within 60 s")
        nodes[name] = node
    return Snapshot(nodes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 10000])
    probes = registry.load()
    base = collect(Host(), probes.sources(probes))
    print(f"Python {platform.python_version()}, one core\n\n| nodes | judge CPU s | text CPU s | lines of text | JSON CPU s |\n|---|---|---|---|---|")
    for count in parser.parse_args().nodes:
        many = snapshot(base, count)
        times = [time.process_time()]
        findings = check(many, probes)
        times.append(time.process_time())
        text = findings_as_text(list(many.nodes), findings, show_all=False, color=None)
        times.append(time.process_time())
        findings_as_json("preflight", list(many.nodes), findings, 0)
        times.append(time.process_time())
        judge, shown, stored = (after - before for before, after in zip(times, times[1:], strict=False))
        print(f"| {count:,} | {judge:.2f} | {shown:.2f} | {len(text.splitlines())} | {stored:.2f} |")


if __name__ == "__main__":
    main()
