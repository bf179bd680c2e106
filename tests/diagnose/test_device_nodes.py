"""RDMA devices that one pod or node has and its neighbour has not."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

NET = '    <net name="{}" dev="{}" latency="0" speed="200000" port="1" guid="0x5a" maxconn="131072" gdr="1"/>'
ALL = ["mlx5_2", "mlx5_3", "mlx5_4"]


def mismatch(*lines: str) -> Cause | None:
    raw = "\n".join([*lines, ""]).encode()
    causes = of_streams([Stream("facts.txt", iter([raw]), raw)]).verdict.causes
    return next((cause for cause in causes if cause.cause == "hca-mismatch-between-nodes"), None)


def nets(heading: str, *names: str) -> list[str]:
    return [*([heading] if heading else []), *(NET.format(name, index) for index, name in enumerate(names))]


def nodes(host: str, *numbers: int) -> list[str]:
    return [f"root@{host}:/# ls /dev/infiniband", "  ".join(["rdma_cm", *(f"uverbs{number}" for number in numbers)])]


def kernel(host: str, *numbers: int) -> list[str]:
    return [
        f"root@{host}:/# grep . /sys/class/infiniband_verbs/uverbs*/ibdev",
        *(f"/sys/class/infiniband_verbs/uverbs{number}/ibdev:mlx5_{number + 2}" for number in numbers),
    ]


@pytest.mark.parametrize("heading", ["== {}: grep '<net ' /tmp/topo.xml", "{}$ grep '<net ' topo.xml", "$ kubectl exec {} -- grep '<net ' /tmp/topo.xml"])  # fmt: skip
def test_fewer_in_the_topology(heading: str) -> None:
    found = mismatch(*nets(heading.format("work-a"), *ALL), *nets(heading.format("work-b"), "mlx5_2", "mlx5_4"))
    assert found is not None and (found.confidence, found.where) == ("likely", {"node": "work-b"})
    assert "lacks mlx5_3" in found.summary


def test_without_headings_it_is_only_possible() -> None:
    found = mismatch(*nets("", *ALL), *nets("", *ALL[:2]))
    assert found is not None and found.confidence == "possible"


LONG = "crw-rw-rw- 1 root root 231, 19{0} Mar  3 10:0{0} uverbs{0}"


@pytest.mark.parametrize(
    "lines",
    [
        [*nodes("w0", 0, 1, 2), *nodes("w1", 0, 2), *kernel("w1", 0, 1, 2)],
        [*nodes("w0", 0, 1, 2), *nodes("w1", 0, 2)],
        [*nodes("w0", 0, 1, 2), "root@w1:/# ls -l /dev/infiniband", "total 0", LONG.format(0), LONG.format(2)],
        ["$ pdsh -w w[0-1] ls /dev/infiniband", *(f"w0: uverbs{number}" for number in (0, 1, 2)), "w1: uverbs0", "w1: uverbs2"],
    ],
    ids=["kernel", "neighbour", "ls -l", "pdsh"],
)  # fmt: skip
def test_a_node_that_is_not_there(lines: list[str]) -> None:
    found = mismatch(*lines)
    assert found is not None and (found.confidence, found.where) == ("likely", {"node": "w1"})
    assert "/dev/infiniband/uverbs1" in found.summary


@pytest.mark.parametrize(
    "lines",
    [
        [*nets("== a: grep net x", *ALL), *nets("== b: grep net x", *ALL)],
        [*nets("== a: grep net x", *ALL), *nets("== b: grep net x", "ibp3s0", "ibp4s0")],
        [*nodes("w0", 0), *kernel("w0", 0, 1, 2), *nodes("w1", 2), *kernel("w1", 0, 1, 2)],
        [*nodes("w0", 0, 1), *nodes("w1", 0, 1), *kernel("w1", 0, 1)],
        ["root@w0:/# ls /dev/infiniband", "ls: cannot access '/dev/infiniband': No such file or directory", *nodes("w1", 0, 1)],
        [*nodes("w0", 0, 1, 2), "uverbs0 of w1 answers"],
    ],
    ids=["the same", "other names", "one of several each", "all nodes", "no list", "a sentence"],
)  # fmt: skip
def test_no_difference(lines: list[str]) -> None:
    assert mismatch(*lines) is None


def test_one_pod_alone_may_have_been_given_fewer() -> None:
    found = mismatch(*nodes("w0", 0, 2), *kernel("w0", 0, 1, 2))
    assert found is not None and found.confidence == "possible"
