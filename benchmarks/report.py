"""How long a report of many nodes and ranks takes, and how large it is.

    python benchmarks/report.py [--nodes 10 100 1000] [--ranks-per-node 8] [-o FILE]

Findings of the simulated nodes of `benchmarks/many_nodes.py`; a hang verdict, a start-up timeline and pair runs composed for
as many ranks and nodes. Judging is not counted: what is measured begins with results and ends with text. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.many_nodes import base, snapshot
from ncdiag import registry
from ncdiag.check import check
from ncdiag.report.formats import written
from ncdiag.report.read import of_findings
from ncdiag.report.result import Result
from ncdiag.report.saved import result_of
from tests.report import samples

ROUNDS = 30
"""Rounds of disjoint pairs: so many pairs does each node take part in."""


def results(nodes: int, per_node: int) -> list[Result]:
    """One of each command."""
    many = snapshot(base(), nodes)
    findings = check(many, registry.load())
    ranks = nodes * per_node
    return [
        of_findings("preflight", many, findings, 1),
        samples.hang(ranks),
        result_of(samples.bringup(ranks), "bringup.json"),
        result_of(samples.bandwidth(nodes, ROUNDS), "bandwidth.json"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--ranks-per-node", type=int, default=8)
    parser.add_argument("-o", "--output", help="keep the last page")
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}, one core\n\n| nodes | ranks | findings | pairs | format | CPU s | MB |\n|---|---|---|---|---|---|---|"
    )
    for nodes in options.nodes:
        given = results(nodes, options.ranks_per_node)
        for format_ in ("html", "junit", "prometheus"):
            began = time.process_time()
            text = written(given, format_)
            took = time.process_time() - began
            size = len(text.encode()) / 1e6
            print(
                f"| {nodes:,} | {nodes * options.ranks_per_node:,} | {len(given[0].findings):,} | {len(given[3].pairs):,} | {format_} | {took:.2f} | {size:.2f} |",
                flush=True,
            )
            if options.output and format_ == "html":
                Path(options.output).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
