"""What stands in capitals in a remedy is filled in where it was read."""

from __future__ import annotations

import pytest

from ncdiag.explain.causes import words
from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.placeholders import filled


def test_only_whole_words_are_filled_in() -> None:
    known = {"PID": 4711, "HOST": "", "PATH": r"a\1b"}
    assert filled("kill -CONT PID; cat /proc/PID/stat; RAPID PID-FILE", known) == (
        "kill -CONT 4711; cat /proc/4711/stat; RAPID PID-FILE"
    )
    assert filled("nc HOST, PATH", known) == r"nc HOST, a\1b"


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:29500", "192.0.2.7"),
        ("192.0.2.7<41239>", "192.0.2.7"),
        ("[2001:db8::7]:29500", "2001:db8::7"),
        ("gpu07", "gpu07"),
        ("rank 3", None),
        ("3", None),
        (None, None),
    ],
)
def test_a_peer_is_an_address_or_a_name_and_no_rank(peer: str | None, host: str | None) -> None:
    assert words({"peer": peer}).get("PEER") == host


def test_a_log_names_the_peer_in_its_remedy() -> None:
    text = "gpu01:71:90 [0] misc/socket.cc:568 NCCL WARN socketStartConnect: Connect to 192.0.2.7<41239> failed : Network is unreachable\n"
    verdict = of_streams([Stream("a.log", iter([text.encode()]), text.encode())]).verdict
    assert verdict.causes[0].remedy.endswith("`ip route get 192.0.2.7`")
    assert "ip route get 192.0.2.7 and ss -tanp on both nodes" in verdict.next
