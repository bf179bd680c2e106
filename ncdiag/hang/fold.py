"""Equal stacks are shown once; the odd one is what a person looks for."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from ncdiag.hang.scene import View
from ncdiag.hang.verdict import Fold
from ncdiag.model import Frame


def folds(views: Sequence[View]) -> List[Fold]:
    """The stacks of the main threads, or of those that they wait for, equal ones together, the largest group first. Line numbers of the innermost frame
    do not count: ranks that poll in a loop are in the same place; where they differ all of them are shown. Native frames count only where all
    stacks have them: they are read of some processes only, which does not make those odd. Of a group the fullest stack is shown, and
    native frames only where all stand at one line and wait for the same."""
    mains = [(view, frames) for view in views if (frames := view.stack)]
    native = all(any(frame.native for frame in frames) for _, frames in mains if frames)
    groups: Dict[Tuple[str, ...], List[Tuple[View, List[Frame], List[Frame]]]] = {}
    for view, frames in mains:
        compared = frames if native else [frame for frame in frames if not frame.native] or frames
        if compared:
            key = (f"{compared[0].name} ({compared[0].file})", *_texts(compared[1:]))
            groups.setdefault(key, []).append((view, frames, compared))
    ordered = sorted(groups.values(), key=lambda group: (-len(group), group[0][0].name))
    most = len(ordered[0]) if ordered else 0
    return [Fold([view.name for view, _, _ in group], _shown(group), len(group) < most) for group in ordered]


def _shown(group: Sequence[Tuple[View, List[Frame], List[Frame]]]) -> List[str]:
    first = group[0][2]
    lines = sorted({compared[0].line or 0 for _, _, compared in group})
    if len({view.match.detail for view, _, _ in group}) > 1:
        return _texts(first)
    if len(lines) == 1:
        return max((_texts(frames) for _, frames, _ in group), key=len)
    return [f"{first[0].name} ({first[0].file}:{', '.join(map(str, lines))})", *_texts(first[1:])]


def _texts(frames: Sequence[Frame]) -> List[str]:
    return [f"{frame.name} ({frame.file}:{frame.line})" if frame.file else frame.name for frame in frames]
