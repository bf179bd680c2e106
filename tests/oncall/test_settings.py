"""The settings: unsafe ones are refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.oncall.alerts import Alert
from ncdiag.oncall.settings import SettingsError, read, read_token

GOOD = "database: /tmp/x.sqlite\nrules:\n  - labels: {alertname: A}\n    playbook: disk-full\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD, "give token_file, or tls with client_ca"),
        (GOOD + "token_file: /x\nlisten: 0.0.0.0\n", "not a loopback address"),
        (GOOD + "token_file: /x\nlisten: localhost\n", "is no address"),
        (GOOD + "token_file: /x\nhook: [notify]\n", "absolute path"),
        (GOOD + "token_file: /x\nhook: notify\n", "list"),
        (GOOD + "token_file: /x\npost: {url: 'file:///etc/passwd'}\n", "pattern"),
        (GOOD + "token_file: /x\napply: yes\n", "Extra inputs"),
        (GOOD.replace("disk-full", "nosuch") + "token_file: /x\n", "f.yaml:4: rules.0.playbook"),
        (GOOD.replace("disk-full", "../x") + "token_file: /x\n", "f.yaml:4: rules.0.playbook"),
        (GOOD.replace("{alertname: A}", "{}") + "token_file: /x\n", "f.yaml:3: rules.0.labels"),
        ("rules: [", "not valid YAML"),
    ],
)
def test_unsafe_or_wrong(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read(file)
    assert says in str(caught.value), caught.value


def test_a_token_that_others_can_read_or_guess(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x" * 30)
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == "x" * 30
    file.write_text("short\n")
    with pytest.raises(SettingsError, match="fewer than 20"):
        read_token(file)


@pytest.mark.parametrize(
    "time",
    ["2026-03-01T10:00:00Z", "2026-03-01T10:00:00.5Z", "2026-03-01T10:00:00.123456789Z", "2026-03-01T12:00:00.1+02:00"],
)
def test_times_as_go_writes_them(time: str) -> None:
    from datetime import datetime, timezone

    alert = Alert(status="firing", labels={}, startsAt=time, fingerprint="0" * 16)
    age = alert.age_s(datetime(2026, 3, 1, 10, 1, tzinfo=timezone.utc))
    assert age is not None and 59 < age <= 60
