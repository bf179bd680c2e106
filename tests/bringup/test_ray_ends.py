"""Workers and nodes that Ray reports as ended are named with the machine that they were on."""

from __future__ import annotations

from typing import Any

from ncdiag.bringup.output import NAME, Output
from ncdiag.bringup.ray_bridge import refusal
from ncdiag.bringup.ray_ends import dead_actor, lost_node
from ncdiag.bringup.timeline import Timeline
from ncdiag.bringup.verdicts import failure

ANSWERS: list[dict[str, Any]] = [{"node": "a", "address": "192.0.2.1"}, {"node": "b", "address": "192.0.2.2"}]
MARK = "(EngineCore pid=15) ERROR 01-02 10:00:00 [core.py:1510] "
DIED = [
    MARK + "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    MARK + "\tclass_name: RayWorkerProc",
    MARK + "\tactor_id: 87b37bdffb5be96620dc4439",
    MARK + "\tpid: 1626",
    MARK + "\tip: 192.0.2.2",
    MARK + "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
]
LATER = MARK + "ray.exceptions.ActorHandleNotFoundError: Failed to find a corresponding actor handle for 87b3"


def lines(*more: str) -> Output:
    output = Output()
    output.feed(True, "\n".join(["INFO it starts", *more, ""]).encode())
    return output


def test_the_actor_is_on_the_node_of_its_address() -> None:
    cause = dead_actor(ANSWERS, {NAME: DIED})
    assert cause is not None and (cause.cause, cause.where) == ("rank-died", {"node": "b"})
    assert "RayWorkerProc, pid 1626" in cause.summary and "SYSTEM_ERROR" in cause.evidence[1].text
    elsewhere = dead_actor([], {NAME: DIED})
    assert elsewhere is not None and elsewhere.where == {"node": "192.0.2.2"}


def test_what_the_end_of_the_engine_prints_afterwards_is_not_the_cause() -> None:
    trace = ["Traceback (most recent call last):", '  File "x.py", line 1, in f', LATER]
    (cause, *_) = failure(ANSWERS, [], lines(*DIED, *trace), Timeline(), 1, {})
    assert (cause.cause, cause.where["node"]) == ("rank-died", "b")


def test_an_exception_before_it_may_be_why_it_died() -> None:
    trace = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "ValueError: the vocabulary is damaged",
    ]
    (cause, *_) = failure(ANSWERS, [], lines(*trace, *DIED), Timeline(), 1, {})
    assert cause.cause != "rank-died"


def test_a_node_that_left_is_the_first_cause() -> None:
    gone = [ANSWERS[0], {"node": "b", "error": "Ray counts this node as dead", "lost": "now"}]
    assert lost_node(ANSWERS) is None
    long_ago = lost_node([{"node": "c", "error": "Ray counts this node as dead", "lost": "before"}])
    assert long_ago is not None and long_ago.confidence == "possible"
    (cause, *_) = failure(gone, [], lines(*DIED), Timeline(), 1, {})
    assert (cause.cause, cause.where) == ("ray-node-lost", {"node": "b"})


def test_the_raylet_s_own_line_names_the_machine_too() -> None:
    line = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: 40 Node ID: 1a "
        "Worker IP address: 192.0.2.2 Worker port: 10005 Worker PID: 138 Worker exit type: SYSTEM_ERROR Worker exit detail: End of file."
    )
    cause = dead_actor(ANSWERS, {NAME: ["INFO", line]})
    assert cause is not None and cause.where == {"node": "b"} and "pid 138" in cause.summary


def test_a_node_on_which_every_worker_dies_is_to_be_looked_at_itself() -> None:
    own = {
        "node": "b",
        "address": "192.0.2.2",
        "error": "its Ray task failed: The worker died unexpectedly while executing this task.",
    }
    cause = dead_actor([ANSWERS[0], own], {NAME: DIED})
    assert cause is not None and cause.where == {"node": "b"}
    assert "every worker that Ray starts on b dies" in cause.summary and "df -h" in cause.remedy


def test_what_the_agent_was_refused_stands_among_frames() -> None:
    told = """Failed to set up runtime environment.
[Node 192.0.2.2] Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/ray/_private/runtime_env/packaging.py", line 971, in download_and_unpack_package
    pkg_file.write_bytes(code)
OSError: [Errno 28] No space left on device

During handling of the above exception, another exception occurred:
"""
    assert refusal(told) == "OSError: [Errno 28] No space left on device"
    assert refusal("Failed to set up runtime environment.\nIOError: the package was deleted") == ""


def test_what_the_node_s_agent_could_not_write_says_why_they_die() -> None:
    own = {
        "node": "b",
        "address": "192.0.2.2",
        "error": "its Ray task failed: The worker died unexpectedly while executing this task.",
        "refused": "OSError: [Errno 28] No space left on device",
    }
    cause = dead_actor([ANSWERS[0], own], {NAME: DIED})
    assert cause is not None and (cause.cause, cause.where) == ("disk-full", {"node": "b"})
    assert any("No space left" in item.text for item in cause.evidence)
    denied = dead_actor([ANSWERS[0], {**own, "refused": "PermissionError: [Errno 13] Permission denied"}], {NAME: DIED})
    assert denied is not None and denied.cause == "rank-died"
    assert any("Permission denied" in item.text for item in denied.evidence)
