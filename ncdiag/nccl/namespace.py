"""Whether the engine's network is the one that is read: a container usually has one of its own. Travels to nodes."""

from __future__ import annotations

from ncdiag.host import Host, HostError, Unreadable


def must_be_ours(host: Host) -> None:
    """Raises Unreadable when the process of `--pid` lives in another network namespace than this one; its interfaces are not ours."""
    if host.pid is None or host.recorded:
        return
    try:
        ours, theirs = host.link("/proc/self/ns/net"), host.link("/proc/%d/ns/net" % host.pid)
    except HostError:
        return
    if ours != theirs:
        raise Unreadable(
            "network of process %d" % host.pid,
            "it lives in another network namespace than ncdiag; run: nsenter -t %d -n ncdiag …" % host.pid,
        )
