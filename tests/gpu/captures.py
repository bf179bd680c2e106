"""The captures of real GPU machines (tests/stacks/gpu, tests/logs/gpu; made by benchmarks/gpu) and the truth beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ncdiag import bundle
from ncdiag.hang.content import DumpContent

TESTS = Path(__file__).parents[1]
STACKS, LOGS = TESTS / "stacks" / "gpu", TESTS / "logs" / "gpu"
FINE = ("healthy", "slow-not-hung")


@dataclass(frozen=True)
class Truth:
    """What was done, and what may be concluded."""

    name: str
    done: str
    causes: tuple[str, ...] = ()
    """Of a dump of all hosts; the best first. Empty: nobody stood when the dump was taken."""
    culprits: tuple[int, ...] = ()
    stage: str = ""
    """The culprits'; empty where it is left to chance."""
    one_host: tuple[str, ...] = ()
    """Of a dump of one host alone, besides `causes`."""
    logs: tuple[str, ...] = ()
    decidable: str = "yes"

    @property
    def fine(self) -> bool:
        """Whether the job works."""
        return self.causes[:1] == FINE[:1] or self.logs[:1] == FINE[:1]


def truths(place: Path) -> dict[str, Truth]:
    said = yaml.safe_load((place / "truth.yaml").read_text())
    found = {}
    for name, row in said.items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in row.items() if key != "seconds"
        }
        found[name] = Truth(name, **fields)
    return found


def moments(name: str) -> list[str]:
    """What stands after the host in the names of a case's dumps: one for each time they were taken at."""
    return sorted({file.name.split(".")[0][len("node0") :] for file in (STACKS / name).glob("node*.tar.gz")})


def hosts(name: str, moment: str) -> dict[str, DumpContent]:
    """Host -> what was read inside it at that moment."""
    files = [
        file
        for file in sorted((STACKS / name).glob("node*.tar.gz"))
        if file.name.split(".")[0][len("node0") :] == moment
    ]
    return {file.name.split(".")[0][: len("node0")]: bundle.load(str(file)) for file in files}


def machine(name: str, moment: str) -> DumpContent | None:
    """What was read from outside, with all hosts in view; None where it was not."""
    file = STACKS / name / f"whole{moment}.tar.gz"
    return bundle.load(str(file)) if file.exists() else None
