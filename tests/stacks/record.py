"""Runs every little program, looks at it with ncdiag's own sampler, and keeps what it saw in `recorded/NAME.json`.

NCDIAG_LAB_PYTHON=…/python python -m tests.stacks.record [NAME…]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ncdiag.host import Host
from ncdiag.processes.sample import Options, sample
from tests.stacks.cases import CASES, Case, can_hide_resolver, running, torch_python

RECORDED = Path(__file__).parent / "recorded"


def look(case: Case, python: str, window_s: float = 1.5) -> list[Any]:
    """The rank states of a case that runs now."""
    with tempfile.TemporaryDirectory(prefix="ncdiag-stacks-") as place, running(case, python, Path(place)) as ranks:
        seen = sample(Host(), [rank.pid for rank in ranks], Options(window_s=window_s)).states
    return [state for state in seen if state.pid != os.getpid()]


def neutral(text: str, python: str) -> str:
    """The same with the paths of this machine replaced."""
    paths = {
        str(Path(python).parent.parent): "/opt/engine",
        str(Path(__file__).parents[2]): "/opt/job",
        str(Path(python).resolve().parent.parent): "/usr",
    }
    for path, name in sorted(paths.items(), key=lambda item: -len(item[0])):
        text = text.replace(path, name)
    return text


def main(names: list[str]) -> int:
    RECORDED.mkdir(exist_ok=True)
    for case in CASES:
        python = torch_python() if case.torch else sys.executable
        if names and case.name not in names:
            continue
        if python is None or (case.private and not can_hide_resolver()):
            print(f"{case.name}: skipped")
            continue
        try:
            states = look(case, python)
        except RuntimeError as error:
            print(f"{case.name}: {error}")
            continue
        data = {"case": case.name, "states": [state.as_dict() for state in states]}
        (RECORDED / f"{case.name}.json").write_text(neutral(json.dumps(data, indent=1), python) + "\n")
        print(f"{case.name}: {len(states)} processes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
