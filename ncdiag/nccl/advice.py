"""One recommended setting. Plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional

ALL_NODES = "*"


@dataclass(frozen=True)
class Advice:
    name: str
    value: Optional[str]  # None: unset it
    node: str  # ALL_NODES, or the one node it is for
    why: str
    derived_from: str  # the facts it rests on
    sure: bool = True  # False: worth a try, to be measured, or needed only `when`
    when: str = ""  # in words: when it counts, where that is not now

    def as_dict(self) -> Dict[str, Any]:
        return asdict(self)
