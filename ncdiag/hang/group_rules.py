"""Ranks compared with each other by their stacks: different collectives, different places."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from ncdiag import stages
from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, claim, everybody, names, seen
from ncdiag.hang.idle import served
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence
from ncdiag.stages.order import LOOSE, PEERS, WORKERS
from ncdiag.stages.threads import is_user
from ncdiag.stages.torch import A_MESSAGE, ONE_SIDED

_INTERNAL = ("torch/", "vllm/distributed/", "<frozen", "threading.py", "contextlib.py")


def call_site(view: View) -> Optional[Tuple[str, str]]:
    """The collective, and the line that calls it: `("all_reduce", "train.py:41")`. None where no frame of the caller is
    known."""
    stack = view.stack
    caller = next((frame for frame in stack if is_user(frame)), None) or next(
        (frame for frame in stack if not frame.native and frame.file and not any(p in frame.file for p in _INTERNAL)),
        None,
    )
    if caller is None:
        return None
    called = A_MESSAGE if view.match.detail in ONE_SIDED else view.match.detail
    return called or view.stage, f"{caller.file}:{caller.line}"


def different_calls(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """All ranks wait for peers, but in different collectives or at different lines: they are out of step."""
    waiting = [view for view in scene.ranks if view.witness and view.waiting in (PEERS, "gpu")]
    if (
        len(waiting) < 2
        or len(waiting) < len(scene.ranks)
        or any(view.stage in ("mesh", "rendezvous") for view in waiting)
    ):
        return
    places: Dict[Tuple[str, Tuple[str, str]], List[View]] = {}
    for view in waiting:
        site = call_site(view)
        if site is None:
            return
        places.setdefault((view.stage, site), []).append(view)
    if len(places) < 2 or len({stage for stage, _ in places}) > 1 or waiting[0].stage == "nccl-init":
        return  # in the bootstrap of one communicator every rank is at a step of its own
    evidence = [
        Evidence(f"stack of {views[0].name}", f"{op} called at {line}")
        for (_, (op, line)), views in sorted(places.items(), key=lambda item: item[0])
    ]
    text = "; ".join(
        f"{names(views)} in {op} ({line})"
        for (_, (op, line)), views in sorted(places.items(), key=lambda item: item[0])
    )
    odd = _minority(list(places.values()))
    yield claim(
        "collective-desync",
        LIKELY if len(waiting) > 2 else POSSIBLE,
        ("these two differ: " if len(waiting) == 2 else "the ranks wait in different collectives: ") + text,
        evidence,
        culprits=odd,
        where=None if odd else {"stage": waiting[0].stage},
    )


_ONE_SIDED = {
    "recv": "receive",
    "recv_object_list": "receive",
    ONE_SIDED[0]: "receive",
    "send": "send",
    "send_object_list": "send",
    ONE_SIDED[1]: "send",
}


def nobody_answers(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """All ranks of the group wait to receive, and none is left that sends; or the other way round."""
    waiting = [view for view in scene.ranks if view.witness and view.waiting == PEERS]
    does = {_ONE_SIDED.get(view.match.detail, "") for view in waiting}
    if len(waiting) < 2 or len(waiting) < len(scene.ranks) or scene.absent or len(does) != 1 or does == {""}:
        return
    word = does.pop()
    other = "sends" if word == "receive" else "receives"
    yield claim(
        "collective-desync",
        LIKELY if scene.world_size == len(waiting) else POSSIBLE,
        f"{everybody(waiting)} to {word}, and none of them {other}",
        [seen(view) for view in waiting[:4]],
        where={"stage": waiting[0].stage},
    )


def _minority(groups: Sequence[List[View]]) -> List[View]:
    """The smaller groups when one group is more than half of all, else nobody."""
    total, largest = sum(len(group) for group in groups), max(groups, key=len)
    if len(largest) * 2 <= total:
        return []
    return [view for group in groups if group is not largest for view in group]


def behind(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """All ranks wait for others, but not at the same stage: who has the least progress is waited for."""
    waiting = [view for view in scene.ranks if view.witness]
    stages_seen = {view.stage for view in waiting}
    if len(waiting) < len(scene.ranks) or len(stages_seen) < 2 or served(scene) is not None:
        return
    if stages_seen <= {"ready", "ray-actor", "serving"} and not _executor_waits(scene, waiting):
        return
    if stages_seen & set(LOOSE):
        least = (
            _minority([[view for view in waiting if view.stage == name] for name in sorted(stages_seen)]) or waiting[:1]
        )
        named = least if len(least) * 2 < len(waiting) and len(waiting) > 2 else []
    else:
        last = min(stages.order(view.stage) for view in waiting)
        least = [view for view in waiting if stages.order(view.stage) == last]
        named = least if len(least) * 2 < len(waiting) else []
    ahead = [view for view in waiting if view.stage != least[0].stage]
    arrows = [
        Wait(other.name, view.name, f"in {other.stage}; the other is in {view.stage}")
        for view in least
        for other in ahead
    ]
    what = ", ".join(f"{names(some)} {stages.describe(some[0].stage, len(some) > 1)}" for some in (least, ahead))
    yield claim(
        "unresolved",
        POSSIBLE,
        ("these two differ: " if len(waiting) == 2 else "") + what,
        [seen(view) for view in (least[0], ahead[0])],
        culprits=named,
        where={"stage": least[0].stage},
        waits=arrows,
    )


def _executor_waits(scene: Scene, waiting: Sequence[View]) -> bool:
    """Whether somebody waits for ranks that wait for work: the executor, or a rank that already works on it."""
    return any(view.stage == "serving" for view in waiting) or any(view.waiting == WORKERS for view in scene.managers)
