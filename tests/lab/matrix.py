"""Runs faults against real engines and says what ncdiag made of each: python -m tests.lab.matrix [--times N] [--save FILE] [NAME…]
    python -m tests.lab.matrix --table benchmarks/fault-matrix.jsonl    the table of benchmarks/fault-matrix.md from what was saved

NAME: a fault (`nodes-port-dropped`), a shape (`gloo`), or nothing for all. Needs root, and NCDIAG_LAB_PYTHON for the engines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ncdiag.drill.attempt import record, run
from ncdiag.drill.faults import FAULTS
from ncdiag.suggest import did_you_mean

ROOMS = ("healthy", "network", "layout", "addresses", "ranks", "storage", "files", "versions", "earlier", "ray")
"""The order of the table: faults of one kind together."""


def table(saved: Path) -> str:
    """Markdown: one line a fault, with its last result; how often it was right, where it ran several times."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in saved.read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row["fault"], []).append(row)
    lines = [
        "| fault | broken | said | where | stage | verdict after | answer |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, fault in sorted(FAULTS.items(), key=lambda item: ROOMS.index(item[1].break_it.__module__.split(".")[-1])):
        runs = rows.get(name, [])
        if not runs:
            lines.append(f"| {name} | {fault.what} | | | | | not run |")
            continue
        last = runs[-1]
        where = ", ".join(f"{key} {last['where'][key]}" for key in ("node", "rank") if key in last["where"])
        said = f"{last['cause']} ({last['confidence']})" if last["cause"] else f"nothing; {last['outcome']}"
        after = f"{last['verdict_s']:.0f} s" if last["verdict_s"] else ("at its end" if last["cause"] else "")
        after = "" if last["confidence"] == "before the start" else after
        right = sum(run["right"] for run in runs)
        answer = ("right" if last["right"] else "**wrong**: " + "; ".join(last["wrong"])) + (
            f" ({right} of {len(runs)})" if len(runs) > 1 else ""
        )
        lines.append(
            f"| {name} | {fault.what} | {said} | {where} | {last['where'].get('stage', '')} | {after} | {answer} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--save", type=Path, help="append each result as a line of JSON")
    parser.add_argument(
        "-v", action="store_true", help="show what ncdiag and the engines said where the answer is wrong"
    )
    parser.add_argument("--table", type=Path)
    options = parser.parse_args(argv)
    if options.table:
        print(table(options.table), end="")
        return 0
    known = [*FAULTS, *(fault.shape for fault in FAULTS.values())]
    for name in options.names:
        if name not in known:
            parser.error(f"no fault or shape is called {name}{did_you_mean(name, known)}")
    chosen = [
        fault
        for name, fault in FAULTS.items()
        if not options.names or name in options.names or fault.shape in options.names
    ]
    failed = 0
    for fault in chosen:
        for _ in range(options.times):
            started = time.monotonic()
            found, wrong = run(fault)
            row = record(fault, found, wrong, time.monotonic() - started)
            failed += bool(wrong)
            print(
                f"{'ok   ' if not wrong else 'WRONG'} {fault.name:32} {row['cause']} {row['where']} {row['verdict_s']} s after, {row['wall_s']} s in all {'; '.join(wrong)}",
                flush=True,
            )
            if wrong and options.v:
                print(found.words, "\n--- a\n", found.a[-3000:], "\n--- b\n", found.b[-3000:])
            if options.save:
                with open(options.save, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
