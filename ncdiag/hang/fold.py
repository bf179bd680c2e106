"""Equal stacks are shown once; the odd one is what a person looks for."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from ncdiag.hang.scene import View
from ncdiag.hang.verdict import Fold
from ncdiag.stages import frames_of, main_thread


def folds(views: Sequence[View]) -> List[Fold]:
    """The stacks of the main threads, equal ones together, the largest group first. Line numbers of the innermost frame
    do not count: ranks that poll in a loop are in the same place."""
    groups: Dict[Tuple[str, ...], List[View]] = {}
    shown: Dict[Tuple[str, ...], List[str]] = {}
    for view in views:
        main = main_thread(view.state.threads)
        frames = frames_of(main) if main is not None else []
        if not frames:
            continue
        text = [f"{frame.name} ({frame.file}:{frame.line})" if frame.file else frame.name for frame in frames]
        key = (f"{frames[0].name} ({frames[0].file})", *text[1:])
        groups.setdefault(key, []).append(view)
        shown.setdefault(key, text)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0].name))
    most = len(ordered[0][1]) if ordered else 0
    return [Fold([view.name for view in members], shown[key], len(members) < most) for key, members in ordered]
