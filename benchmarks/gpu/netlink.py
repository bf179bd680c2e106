"""Carries out steps of rtnetlink inside the network namespace that it is started in: netlink.py '[["link", "set", {…}], …]'.

A step is the object, the verb and its arguments as pyroute2 takes them; an interface may be given by its name under `dev`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyroute2 import IPRoute


def step(route: Any, kind: str, verb: str, options: dict[str, Any]) -> None:
    device = options.pop("dev", None)
    if device is not None:
        found = route.link_lookup(ifname=device)
        if not found:
            raise SystemExit(f"no interface {device} here")
        options["oif" if kind == "route" else "index"] = found[0]
    getattr(route, kind)(verb, **options)


if __name__ == "__main__":
    with IPRoute() as opened:
        for kind, verb, options in json.loads(sys.argv[1]):
            step(opened, kind, verb, options)
