"""Equal stacks are shown once; the odd one is what a person looks for."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from ncdiag.hang.scene import View
from ncdiag.hang.verdict import Fold
from ncdiag.model import Frame
from ncdiag.stages import frames_of, main_thread


def folds(views: Sequence[View]) -> List[Fold]:
    """The stacks of the main threads, equal ones together, the largest group first. Line numbers of the innermost frame
    do not count: ranks that poll in a loop are in the same place. Native frames count only where all stacks have them: they
    are read of some processes only, which does not make those odd. Of a group the fullest stack is shown."""
    mains = [(view, frames_of(main)) for view in views if (main := main_thread(view.state.threads)) is not None]
    native = all(any(frame.native for frame in frames) for _, frames in mains if frames)
    groups: Dict[Tuple[str, ...], List[View]] = {}
    shown: Dict[Tuple[str, ...], List[str]] = {}
    for view, frames in mains:
        compared = frames if native else [frame for frame in frames if not frame.native] or frames
        if not compared:
            continue
        key = (f"{compared[0].name} ({compared[0].file})", *_texts(compared[1:]))
        groups.setdefault(key, []).append(view)
        shown[key] = max(shown.get(key, []), _texts(frames), key=len)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0].name))
    most = len(ordered[0][1]) if ordered else 0
    return [Fold([view.name for view in members], shown[key], len(members) < most) for key, members in ordered]


def _texts(frames: Sequence[Frame]) -> List[str]:
    return [f"{frame.name} ({frame.file}:{frame.line})" if frame.file else frame.name for frame in frames]
