"""By which address a node is told to be met."""

from __future__ import annotations

import ipaddress

import pytest

from ncdiag.bandwidth.node.network import own_address


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCDIAG_ADDRESS", raising=False)


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7"])
def test_where_the_session_came_in(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", f"192.0.2.1 51022 {address} 22")
    assert own_address({}) == address


@pytest.mark.parametrize("word", ["UNKNOWN", "127.0.0.1", "::1", "0.0.0.0", "fe80::1%eth0", "gpu07"])
def test_what_is_no_address_for_others_is_not_used(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """sshd over a pipe (`ProxyCommand sshd -i`) has no address of its own."""
    monkeypatch.setenv("SSH_CONNECTION", f"UNKNOWN 65535 {word} 65535")
    found = own_address({"lo": "127.0.0.1", "eth0": "192.0.2.9"})
    assert found != word
    assert not ipaddress.ip_address(found).is_loopback
