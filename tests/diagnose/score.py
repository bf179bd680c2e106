"""Scores `diagnose` on a folder of incidents with case.yaml: python tests/diagnose/score.py ../shared/cases/incidents [-v] [NAME…]"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from ncdiag.logs.diagnose import diagnose


def inputs(case: Path) -> list[str]:
    return sorted(str(path) for path in case.iterdir() if path.name != "case.yaml")


def main(root: Path, names: list[str], verbose: bool) -> None:
    tally = {"yes": [0, 0], "partly": [0, 0], "no": [0, 0]}
    false_sure = 0
    for case in sorted(root.iterdir()):
        if not (case / "case.yaml").exists() or (names and not any(name in case.name for name in names)):
            continue
        truth = yaml.safe_load((case / "case.yaml").read_text())
        causes = diagnose(inputs(case)).verdict.causes
        slugs = [cause.cause for cause in causes]
        depth = 1 if truth["decidable"] == "yes" else 3
        right = truth["cause"] in slugs[:depth] if truth["decidable"] != "no" else True
        wrong_sure = [
            c.cause
            for c in causes
            if c.confidence == "sure" and (truth["decidable"] == "no" or c.cause != truth["cause"])
        ]
        false_sure += bool(wrong_sure)
        tally[truth["decidable"]][0] += right
        tally[truth["decidable"]][1] += 1
        if not right or wrong_sure or verbose:
            shown = ", ".join(f"{c.cause}:{c.confidence}" for c in causes[:5])
            print(
                f"{'ok  ' if right else 'MISS'} {'SURE! ' if wrong_sure else ''}{case.name} [{truth['decidable']}] want {truth['cause']}: {shown}"
            )
    print(tally, "false sure:", false_sure)


if __name__ == "__main__":
    options = [argument for argument in sys.argv[2:] if argument.startswith("-")]
    main(Path(sys.argv[1]), [argument for argument in sys.argv[2:] if not argument.startswith("-")], "-v" in options)
