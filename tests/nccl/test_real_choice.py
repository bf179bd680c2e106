"""NCCL's own choice of interface, asked of real NCCL libraries in a namespace; no GPU is needed for ncclGetUniqueId.

NCDIAG_LAB_NCCL names the libraries: paths of libnccl.so.2 with colons between.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ncdiag.nccl.interfaces import Choice, bootstrap, local_addresses
from ncdiag.nccl.version import parse_version
from tests.probes.namespaces import facts_in, namespace, needs_root

LIBRARIES = [Path(path) for path in os.environ.get("NCDIAG_LAB_NCCL", "").split(":") if path]

ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
library.ncclGetVersion(ctypes.byref(version))
print("version", version.value, flush=True)
library.ncclGetUniqueId(ctypes.byref((ctypes.c_char * 128)()))
"""

CROWD = [
    "link add docker0 type bridge",
    "addr add 10.77.1.1/24 dev docker0",
    "link set docker0 up",
    "link add far9 type veth peer name near9",
    "link set far9 up",
    "link set near9 up",
    "link set far9 master docker0",
    "link add virbr0 type veth peer name farv",
    "addr add 10.77.8.1/24 dev virbr0",
    "link set virbr0 up",
    "link set farv up",
    "link add eth0 type veth peer name far0",
    "addr add 10.77.2.1/24 dev eth0",
    "addr add 10.77.2.2/24 dev eth0 label eth0:1",
    "link set eth0 up",
    "link set far0 up",
    "link add eth1 type veth peer name far1",
    "addr add 10.77.3.1/24 dev eth1",
    "link set eth1 up",
    "link add eth10 type veth peer name far10",
    "addr add 10.77.4.1/24 dev eth10",
    "link set eth10 up",
    "link set far10 up",
    "link add v6only type veth peer name far6",
    "-6 addr add 2001:db8::1/64 dev v6only nodad",
    "link set v6only up",
    "link set far6 up",
]

IB = [
    *CROWD,
    "link add ib0 type veth peer name farib",
    "addr add 10.77.9.1/24 dev ib0",
    "link set ib0 up",
    "link set farib up",
]
DOWN_FIRST = [
    "link add eth0 type veth peer name far0",
    "addr add 10.77.2.1/24 dev eth0",
    "link set eth0 up",
    "link add eth1 type veth peer name far1",
    "addr add 10.77.3.1/24 dev eth1",
    "link set eth1 up",
    "link set far1 up",
]
ONLY_SIX = [
    "link add eth0 type veth peer name far0",
    "link set eth0 up",
    "link set far0 up",
    "-6 addr add 2001:db8::1/64 dev eth0 nodad",
]

CASES: list[tuple[str, list[str], list[dict[str, str]]]] = [
    (
        "crowd",
        CROWD,
        [
            {},
            *(
                {"NCCL_SOCKET_IFNAME": value}
                for value in (
                    "eth",
                    "eth1",
                    "=eth1",
                    "=eth10",
                    "=eth",
                    "^eth",
                    "^=eth0",
                    "^docker,lo,virbr",
                    "^=eth0,virbr0,docker0,lo",
                    "eth10,eth0",
                    "=eth0,^eth1",
                    "=^eth0",
                    "eth0:1",
                    "=eth0:1",
                    ":1",
                    "^",
                    "^,",
                    ",",
                    "e",
                    "lo",
                    "docker",
                    "ib",
                    " eth0",
                    "eth0, eth1",
                    "v6only",
                    "ETH0",
                    "virbr0",
                    "^=lo,docker0,eth0,virbr0,eth0:1",
                )
            ),
            {"NCCL_SOCKET_FAMILY": "AF_INET6"},
            {"NCCL_SOCKET_FAMILY": "AF_INET6", "NCCL_SOCKET_IFNAME": "eth"},
            {"NCCL_SOCKET_FAMILY": "inet6"},
            {"NCCL_COMM_ID": "10.77.4.9:4000"},
            {"NCCL_COMM_ID": "10.77.4.9:4000", "NCCL_SOCKET_IFNAME": "eth0"},
            {"NCCL_COMM_ID": "10.99.0.1:4000"},
            {"NCCL_COMM_ID": "[2001:db8::9]:4000"},
        ],
    ),
    ("ib", IB, [{}, {"NCCL_SOCKET_IFNAME": "^ib"}, {"NCCL_COMM_ID": "10.77.2.9:4000"}]),
    ("down-first", DOWN_FIRST, [{}, {"NCCL_SOCKET_IFNAME": "eth0"}, {"NCCL_SOCKET_IFNAME": "=eth1"}]),
    ("only-six", ONLY_SIX, [{}, {"NCCL_SOCKET_FAMILY": "AF_INET"}, {"NCCL_SOCKET_IFNAME": "eth0"}]),
    ("only-loopback", [], [{}, {"NCCL_SOCKET_IFNAME": "eth"}, {"NCCL_SOCKET_FAMILY": "AF_INET6"}]),
]


def _ask(name: str, library: Path, environ: dict[str, str]) -> tuple[str, str | None]:
    """`(NCCL's version, "interface:address" or None)`, from its own log."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NCCL_")}
    told = subprocess.run(
        ["ip", "netns", "exec", name, sys.executable, "-c", ASK, str(library)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**kept, **environ, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,NET,ENV"},
    )
    version = re.search(r"^version (\d+)$", told.stdout, re.M)
    assert version, told.stderr
    used = re.search(r"Bootstrap ?: Using ([^\s%<]+)(?:%\S+)?<\d+>", told.stdout)
    if used is None and told.returncode:
        pytest.skip(f"{library} does not get as far as its choice without a GPU")
    return version.group(1), used.group(1) if used else None


def _shown(choice: Choice) -> str | None:
    return "%s:%s" % (choice.chosen[0].name, choice.chosen[0].address) if choice.chosen else None


@pytest.mark.lab
@pytest.mark.parametrize(("label", "commands", "environs"), CASES, ids=[case[0] for case in CASES])
def test_we_choose_as_nccl_does(label: str, commands: list[str], environs: list[dict[str, str]]) -> None:
    needs_root()
    if not LIBRARIES:
        pytest.skip("NCDIAG_LAB_NCCL names no libnccl.so.2")
    wrong = []
    with namespace("ncdiag-nccl", commands) as name:
        facts = facts_in(name, "interfaces")
        assert isinstance(facts, dict)
        addresses = local_addresses(facts)
        for library in LIBRARIES:
            for environ in environs:
                told, real = _ask(name, library, environ)
                version = parse_version(told)
                assert version is not None
                ours = _shown(bootstrap(addresses, environ, version))
                if ours != real:
                    wrong.append((told, environ, "NCCL takes %s" % real, "we say %s" % ours))
    assert not wrong
