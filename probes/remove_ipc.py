"""Logging out does not remove the shared memory of running ranks.

With systemd's default `RemoveIPC=yes` every object in /dev/shm that belongs to an ordinary user is removed when the last
session of that user ends: ranks started over SSH lose their segments in the middle of the run, and NCCL fails with
"unable to open shared memory". It does not concern root and system users.

Source: NCCL user guide, troubleshooting, "Shared memory: systemd"; logind.conf(5) RemoveIPC.
"""

from __future__ import annotations

import os
import re
from typing import Iterator, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, warn

FILES = ("/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf")
"""Later files win, drop-ins last."""

SYSTEM_UID_MAX = 999
"""Users up to this number are system users, whose objects stay."""


class Facts(TypedDict):
    """What logind is told."""

    logind: bool
    """Whether systemd-logind is on this machine at all."""
    setting: Optional[bool]
    """RemoveIPC as written; None: not written, so the default (yes)."""
    source: str
    uid: Optional[int]


def collect(host: Host) -> Facts:
    facts: Facts = {
        "logind": host.exists("/run/systemd/seats") or host.exists("/run/systemd/users"),
        "setting": None,
        "source": FILES[-1],
        "uid": None,
    }
    files = list(FILES)
    for folder in ("/usr/lib/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"):
        files += [folder + "/" + name for name in host.names(folder) if name.endswith(".conf")]
    for path in files:
        try:
            found = re.findall(r"^\s*RemoveIPC\s*=\s*(\w+)", host.read(path), re.M)
        except HostError:
            continue
        if found:
            facts["setting"], facts["source"] = found[-1].lower() in ("yes", "true", "1", "on"), path
    try:
        facts["uid"] = host.ask("uid", os.getuid)
    except HostError:
        pass
    return facts


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        if not facts["logind"]:
            yield skip("no systemd-logind here (a container, or another init)", node, source="/run/systemd")
        elif facts["setting"] is False:
            yield ok("RemoveIPC=no", node, source=facts["source"], observed=False)
        elif facts["uid"] is None or facts["uid"] <= SYSTEM_UID_MAX:
            yield skip("RemoveIPC is on, but it spares root and system users", node, source=facts["source"])
        else:
            yield warn(
                "RemoveIPC is on: shared memory of user %d goes when the last log-in session ends" % facts["uid"],
                node,
                source=facts["source"],
                observed=True,
                expected=False,
                cause="shm-removed-at-logout",
                remedy="set RemoveIPC=no in /etc/systemd/logind.conf and restart systemd-logind, or loginctl enable-linger for the user",
            )


PROBE = Probe("remove-ipc", "Logging out does not remove shared memory", judge, collect)
