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


VERBS = ["    device          \t   node GUID", "    ------          \t----------------"]


def verbs(host: str, *names: str, command: str = "ibv_devices") -> list[str]:
    rows = [f"    {name}          \t1c34da0300{index}5a1b2c" for index, name in enumerate(names)]
    return [f"[ops@{host} ~]$ {command}", *(VERBS if command == "ibv_devices" else []), *rows]


@pytest.mark.parametrize("command", ["ibv_devices", "ls /sys/class/infiniband", "ibv_devices 2>/dev/null"])
def test_fewer_in_a_list_of_names(command: str) -> None:
    found = mismatch(*verbs("n1", *ALL, command=command), *verbs("n2", *ALL[1:], command=command))
    assert found is not None and (found.confidence, found.where) == ("likely", {"node": "n2"})
    few = mismatch(*verbs("n1", *ALL, command=command), *verbs("head", *ALL[:1], command=command))
    assert few is not None and few.confidence == "possible"
    assert mismatch(*verbs("n1", *ALL, command=command), *verbs("n2", *ALL, command=command)) is None


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


def test_lists_under_prompts_without_a_name() -> None:
    asks = "# ls -1 /dev/infiniband/"
    found = mismatch("### n1", asks, "rdma_cm", "uverbs0", "uverbs1", "### n2", asks, "rdma_cm", "uverbs0")
    assert found is not None and found.confidence == "possible"


def test_pods_of_a_namespace() -> None:
    asks = "$ kubectl exec -n lab {} -c main -- ls /dev/infiniband"
    found = mismatch(asks.format("w0"), "umad0  uverbs0  uverbs1", asks.format("w1"), "umad0  uverbs0")
    assert found is not None and (found.confidence, found.where) == ("likely", {"node": "w1"})


def test_one_pod_alone_may_have_been_given_fewer() -> None:
    found = mismatch(*nodes("w0", 0, 2), *kernel("w0", 0, 1, 2))
    assert found is not None and found.confidence == "possible"
