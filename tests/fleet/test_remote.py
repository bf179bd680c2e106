"""What a node's answer means, in words; and the loader, which ends when nobody listens."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ncdiag import payload
from ncdiag.fleet.remote import Answer, loader, outcome, reason
from ncdiag.fleet.ssh import each_once
from ncdiag.model import NodeFacts

BANNER = "Connection timed out during banner exchange"
KEX = "kex_exchange_identification: Connection closed by remote host"


@pytest.mark.parametrize("rc, err, words", [
    (255, "ssh: connect to host gpu01 port 22: Connection refused", "ssh: connect to host gpu01 port 22: Connection refused"),
    (255, "Authorized use only.\nroot@gpu01: Permission denied (publickey).", "root@gpu01: Permission denied (publickey)."),
    (255, BANNER, f"no SSH server spoke at the end of the way there (its port, ProxyCommand or jump host) (ssh: {BANNER})"),
    (255, f"{BANNER}\nConnection to 192.0.2.7 port 22 timed out", f"no SSH server spoke on the port that took the connection (ssh: {BANNER})"),
    (255, f"{BANNER}\nConnection to UNKNOWN port 65535 timed out", f"no SSH server spoke through its ProxyCommand or jump host (ssh: {BANNER})"),
    (255, f"proxy: no route to gpu01\n{KEX}\nConnection closed by UNKNOWN port 65535", "proxy: no route to gpu01"),
    (255, f"ssh: connect to host jump port 22: No route to host\n{KEX}\nConnection closed by UNKNOWN port 65535",
     "ssh: connect to host jump port 22: No route to host"),
    (255, f"channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n{KEX}\nConnection closed by UNKNOWN port 65535",
     "channel 0: open failed: connect failed: Connection refused"),
    (255, f"{KEX}\nConnection closed by UNKNOWN port 65535",
     "its ProxyCommand or jump host ended the connection (ssh: Connection closed by UNKNOWN port 65535)"),
    (255, f"{KEX}\nConnection closed by 192.0.2.7 port 22", "Connection closed by 192.0.2.7 port 22"),
    (255, "", "the connection failed without a word"),
    (None, "", "no answer within 5 s"),
    (None, f"{BANNER}\nConnection to UNKNOWN port 65535 timed out",
     f"no answer within 5 s (no SSH server spoke through its ProxyCommand or jump host (ssh: {BANNER}))"),
    (97, "ncdiag-no-python python3=3.6", "no Python 3.8 or newer there; there is python3=3.6"),
    (97, "ncdiag-no-python", "no Python 3.8 or newer there, and no other"),
    (127, "sh: not found", "the collector ended with status 127: sh: not found"),
    (255, f"sh: 1: exec: nosuchproxy: not found\n{KEX}", "sh: 1: exec: nosuchproxy: not found"),
    (255, f"/bin/sh: line 1: exec: nosuchproxy: not found\n{KEX}\nConnection closed by UNKNOWN port 65535", "/bin/sh: line 1: exec: nosuchproxy: not found"),
    (255, KEX, KEX), (255, f"Warning: Permanently added 'gpu01' (ED25519) to the list of known hosts.\n{KEX}", KEX),
    (0, "", "its output holds no facts"),
])  # fmt: skip
def test_the_reason_in_one_sentence(rc: int | None, err: str, words: str) -> None:
    assert reason(Answer(rc, "", err), "its output holds no facts", 5) == words


def test_a_login_that_ends_at_once_is_told_in_its_own_words() -> None:
    told = reason(Answer(1, "This account is currently not available.\n", ""), "its output holds no facts", 5)
    assert told.startswith("the login ended with status 1; it printed 'This account is currently not available.'")
    assert (
        reason(Answer(127, "Welcome\n", "sh: not found"), "", 5) == "the collector ended with status 127: sh: not found"
    )
    told = reason(Answer(1, "\nncdiag-clock 1.0\n", "MemoryError"), "its output holds no facts", 5)
    assert told == "the collector ended with status 1: MemoryError"


@pytest.mark.parametrize(
    "out", ["", "Welcome\n", "ncdiag-payload-begin 3\nabc\n", "\nncdiag-payload-begin 2\n[]\nncdiag-payload-end\n"]
)
def test_garbage_is_a_reason_and_no_facts(out: str) -> None:
    node = outcome("gpu01", Answer(0, out, ""), 5)
    assert node.unreachable and node.facts == {}


def test_the_payload_ends_when_nobody_reads_it() -> None:
    packed = payload.pack_call("ncdiag.reach.agent", {"nodes": []})
    slow = b"import time; time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-S", "-I", "-c", loader(len(packed)).replace("import runpy", slow.decode())],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin and process.stdout
    process.stdin.write(packed)
    process.stdin.flush()
    assert process.stdout.readline() == b"\n" and process.stdout.readline().startswith(b"ncdiag-clock ")
    time.sleep(0.3)
    assert process.poll() is None, "while it is listened to it goes on"
    process.stdout.close()
    assert process.wait(5) == 1
    process.stdin.close()


@pytest.mark.parametrize(
    "text", ['{"node": "x", "facts": []}', '{"node": "x", "meta": 3}', '{"nodes": {}}', '"text"', "null"]
)
def test_json_of_another_shape_is_no_facts(text: str) -> None:
    out = f"\nncdiag-payload-begin {len(text)}\n{text}\nncdiag-payload-end\n"
    assert outcome("gpu01", Answer(0, out, ""), 5).unreachable == "its output holds no facts"


def facts(name: str, hostname: str, *macs: str) -> NodeFacts:
    return NodeFacts(
        name,
        {"interfaces": {"links": [{"name": "lo", "mac": "0" * 12}, *({"mac": mac} for mac in macs)]}},
        meta={"hostname": hostname},
    )


@pytest.mark.parametrize("nodes, kept", [
    ([facts("192.0.2.7", "gpu01", "aa", "bb"), facts("gpu01", "gpu01", "bb", "aa"), facts("gpu02", "gpu02", "cc")], "gpu01 gpu02"),
    ([facts("a", "gpu01", "aa"), facts("b", "gpu01", "ab")], "a b"),
    ([facts("a", "gpu01"), facts("b", "gpu01")], "a b"),
    ([NodeFacts("a", unreachable="refused"), NodeFacts("b", unreachable="refused"), facts("c", "c", "cc")], "a b c"),
])  # fmt: skip
def test_a_machine_that_was_named_twice_is_there_once(nodes: list[NodeFacts], kept: str) -> None:
    found, notes = each_once(nodes)
    assert [node.node for node in found] == kept.split()
    assert notes == (["192.0.2.7 is gpu01 once more, and left out"] if len(found) < len(nodes) else [])
