"""Output of one command on many hosts: recognised, put together by host, and what it says is said of that host."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import pytest

from ncdiag.logs.diagnose import diagnose
from ncdiag.logs.fanned import is_fanned

Outputs = dict[str, list[str]]


def pdsh(outputs: Outputs) -> str:
    """The hosts' lines mixed, as they come."""
    rows = zip_longest(*([f"{host}: {line}" for line in lines] for host, lines in outputs.items()))
    return "".join(f"{line}\n" for row in rows for line in row if line is not None)


def clush(outputs: Outputs) -> str:
    return "".join(f"{host}: {line}\n" for host, lines in outputs.items() for line in lines)


def gathered(outputs: Outputs) -> str:
    """clush -b; dshbak has one dash more."""
    bar = "-" * 15
    return "".join(f"{bar}\n{host}\n{bar}\n" + "\n".join(lines) + "\n" for host, lines in outputs.items())


def ansible(outputs: Outputs) -> str:
    return "".join(f"{host} | CHANGED | rc=0 >>\n" + "\n".join(lines) + "\n\n" for host, lines in outputs.items())


def smi(bad: bool) -> list[str]:
    return [
        "+-----------------------------------------------------------------------------------------+",
        "| NVIDIA-SMI 570.86.10              Driver Version: 570.86.10      CUDA Version: 12.8     |",
        "|-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        f"|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    {3 if bad else 0} |",
        "| N/A   31C    P0             112W /  700W |       4MiB /  81559MiB |      0%      Default |",
        "+-----------------------------------------+------------------------+----------------------+",
    ]


def devinfo(bad: bool) -> list[str]:
    return [
        "hca_id:\tmlx5_0",
        "\ttransport:\t\t\tInfiniBand (0)",
        "\tphys_port_cnt:\t\t\t1",
        "\t\tport:\t1",
        f"\t\t\tstate:\t\t\t{'PORT_DOWN (1)' if bad else 'PORT_ACTIVE (4)'}",
        "\t\t\tactive_mtu:\t\t4096 (5)",
        "\t\t\tlink_layer:\t\tEthernet",
    ]


def gids(bad: bool) -> list[str]:
    """The routable one at another index."""
    row = "mlx5_0\t1\t{}\t{}\t{}\t{}\tens1"
    routable = "0000:0000:0000:0000:0000:ffff:c000:020a"
    return [
        "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV",
        "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---",
        row.format(0, "fe80:0000:0000:0000:0200:00ff:fe00:0001", "\t", "v1"),
        row.format(1, "fe80:0000:0000:0000:0200:00ff:fe00:0001", "\t", "v2"),
        row.format(5 if bad else 3, routable, "192.0.2.10  ", "v2"),
        "n_gids_found=3",
    ]


def addresses(bad: bool) -> list[str]:
    flags = "NO-CARRIER,BROADCAST,MULTICAST,UP" if bad else "BROADCAST,MULTICAST,UP,LOWER_UP"
    return [
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000",
        "    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00",
        f"2: ens1: <{flags}> mtu 9000 qdisc mq state {'DOWN' if bad else 'UP'} group default qlen 1000",
        "    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff",
    ]


def ulimit(bad: bool) -> list[str]:
    return [
        "core file size              (blocks, -c) 0",
        f"max locked memory           (kbytes, -l) {64 if bad else 'unlimited'}",
        "open files                          (-n) 1024",
    ]


def df(bad: bool) -> list[str]:
    return [
        "Filesystem      Size  Used Avail Use% Mounted on",
        "/dev/sda1       100G   50G   50G  50% /",
        f"tmpfs           {' 64M' if bad else '512G'}     0  {' 64M' if bad else '512G'}   0% /dev/shm",
    ]


FORMS: list[Callable[[Outputs], str]] = [pdsh, clush, gathered, ansible]
TABLES: dict[Callable[[bool], list[str]], str] = {
    smi: "gpu-hardware-fault",
    devinfo: "ib-link-or-hca-fault",
    addresses: "ib-link-or-hca-fault",
    ulimit: "memlock-limit",
    df: "shm-too-small",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("table", TABLES)
def test_the_host_that_is_not_well_is_named(
    table: Callable[[bool], list[str]], form: Callable[[Outputs], str], tmp_path: Path
) -> None:
    path = tmp_path / "all.txt"
    path.write_text(form({host: table(host == "gpu07") for host in ("gpu06", "gpu07", "gpu08")}))
    cause = diagnose([str(path)]).verdict.causes[0]
    assert (cause.cause, cause.where.get("node")) == (TABLES[table], "gpu07")
    for item in cause.evidence:
        assert item.line and path.read_text().split("\n")[item.line - 1].strip() == item.text


@pytest.mark.parametrize("form", FORMS)
def test_tables_of_hosts_are_compared(form: Callable[[Outputs], str], tmp_path: Path) -> None:
    path = tmp_path / "gids.txt"
    path.write_text(form({host: gids(host == "gpu07") for host in ("gpu06", "gpu07", "gpu08")}))
    cause = diagnose([str(path)]).verdict.causes[0]
    assert cause.cause == "roce-gid-wrong" and "different indexes on the nodes: 3 and 5" in cause.summary
    assert "node" not in cause.where


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("table", [*TABLES, gids])
def test_nothing_is_wrong_where_nothing_is(
    table: Callable[[bool], list[str]], form: Callable[[Outputs], str], tmp_path: Path
) -> None:
    path = tmp_path / "all.txt"
    path.write_text(form({host: table(False) for host in ("gpu06", "gpu07")}))
    assert diagnose([str(path)]).verdict.causes[0].cause in ("unresolved", "healthy")


@pytest.mark.parametrize(
    "text",
    [
        "Architecture:        x86_64\nCPU(s):              128\nModel name:          AMD EPYC\nNUMA node0 CPU(s):   0-63\n",
        "ERROR: one\nERROR: two\nERROR: three\nERROR: four\n",
        "rank0: loss 1\nrank0: loss 2\nrank0: loss 3\nrank1: loss 1\n",
        "model-1.safetensors:  10%|█  | 1/10\nmodel-1.safetensors:  20%|██ | 2/10\nmodel-1.safetensors:  30%|███| 3/10\n",
        "gpu07:100:200 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.7<0>\n" * 5,
        "---------------\nSummary\n---------------\nall is well\n",
        "",
    ],
)
def test_other_texts_are_not_taken_for_it(text: str) -> None:
    assert not is_fanned(text.encode())


def test_lines_keep_their_numbers_and_their_order(tmp_path: Path) -> None:
    """Thousands of lines of a host, some without text, between those of another one."""
    path = tmp_path / "train.log"
    lines = [f"gpu0{7 + number % 2}: step {number} | loss 1.{number}" for number in range(9000)]
    lines[4000] = "gpu07:"
    lines[6001] = "gpu08: RuntimeError: CUDA error: an illegal memory access was encountered"
    lines[6003] = "gpu08: "
    path.write_text("\n".join(lines[:6004]) + "\n")
    cause = diagnose([str(path)]).verdict.causes[0]
    assert (cause.cause, cause.where["node"]) == ("cuda-illegal-memory-access", "gpu08")
    assert [(item.line, item.text) for item in cause.evidence] == [(6002, lines[6001])]
