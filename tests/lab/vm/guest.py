"""The job inside the machine: builds fabrics, lets ncdiag read them, and tries real connections. Writes /out/result.json.

Standard library and ncdiag only. It concludes nothing: the tests outside do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

sys.path.insert(0, "/lab")

from ncdiag import registry
from ncdiag.collect import collect
from ncdiag.host import Host
from ncdiag.nccl import gid
from ncdiag.record import Recorder
from tests.lab.vm import agents

CONCERNED = (
    "interfaces",
    "rdma-devices",
    "rdma-port",
    "rdma-mtu",
    "roce-gid",
    "verbs-access",
    "nccl-environment",
    "nccl-conf-files",
)
SIDES = (("veth0", "rxe0", "p0", 100), ("veth1", "rxe1", "p1", 101))
LIMIT_S = 12.0


def do(*lines: str) -> None:
    """Runs `ip`, `rdma` … lines; one that fails is said in the log, and the set-up goes on."""
    for line in lines:
        done = subprocess.run(line.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            print(line, "->", done.stdout.decode(errors="replace").strip(), flush=True)


def setting(name: str, value: str) -> None:
    with open("/proc/sys/net/" + name, "w") as file:
        file.write(value)


def rules() -> None:
    """Packets of veth0 for veth1's address go out of veth0, although the address is this machine's own."""
    for name, value in (("ipv4/conf/all/accept_local", "1"), ("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/default/rp_filter", "0"),
                        ("ipv4/conf/all/arp_ignore", "1"), ("ipv4/conf/default/arp_ignore", "1"),
                        ("ipv6/conf/all/accept_dad", "0"), ("ipv6/conf/default/accept_dad", "0")):  # fmt: skip
        setting(name, value)
    for family in ("-4", "-6"):
        for number, (link, _, _, table) in enumerate(SIDES):
            do(
                f"ip {family} rule add pref {10 + number} iif {link} lookup local",
                f"ip {family} rule add pref {20 + number} oif {link} lookup {table}",
            )
        do(f"ip {family} rule add pref 100 lookup local", f"ip {family} rule del pref 0")


def up(routed: bool = False) -> None:
    """Two links with an rxe each, and a bridge or a router in a namespace between them."""
    do("ip netns add sw")
    for number, (link, _, port, _) in enumerate(SIDES, 1):
        do(f"ip link add {link} address 02:00:00:00:00:0{number} type veth peer name {port} netns sw")
    if routed:
        do("ip netns exec sw sysctl -qw net.ipv4.ip_forward=1")
        do(*(f"ip -n sw addr add 10.77.{number}.254/24 dev p{number - 1}" for number in (1, 2)))
    else:
        do(
            "ip -n sw link add br0 type bridge",
            "ip -n sw link set br0 up",
            "ip -n sw link set p0 master br0",
            "ip -n sw link set p1 master br0",
        )
    do("ip -n sw link set p0 up", "ip -n sw link set p1 up")
    for link, device, _, _ in SIDES:
        do(f"ip link set {link} up", f"rdma link add {device} type rxe netdev {link}")


def down() -> None:
    do(
        *(f"rdma link del {device}" for _, device, _, _ in SIDES),
        "ip link del veth0",
        "ip link del veth1",
        "ip netns del sw",
    )
    setting("ipv6/conf/default/disable_ipv6", "0")
    time.sleep(0.2)


def address(number: int, *texts: str) -> None:
    """Gives veth<number> these addresses in this order, and the way to their networks."""
    link, _, _, table = SIDES[number]
    for text in texts:
        family = "-6" if ":" in text else "-4"
        network = (
            text.replace("::1/", "::/").replace("::2/", "::/") if ":" in text else text.rpartition(".")[0] + ".0/24"
        )
        do(
            f"ip {family} addr add {text} dev {link}" + (" nodad" if ":" in text else ""),
            f"ip {family} route replace {network} dev {link} table {table}",
        )


def one_address_each() -> None:
    up()
    address(0, "10.77.0.1/24")
    address(1, "10.77.0.2/24")


def ipv6_before_ipv4() -> None:
    up()
    address(0, "fd77::1/64", "10.77.0.1/24")
    address(1, "fd77::2/64", "10.77.0.2/24")


def uneven() -> None:
    up()
    address(0, "fd77::1/64", "10.77.0.1/24")
    address(1, "10.77.0.2/24")


def ipv6_only() -> None:
    up()
    address(0, "fd77::1/64")
    address(1, "fd77::2/64")


def an_address_taken_away() -> None:
    up()
    address(0, "10.77.9.1/24", "10.77.0.1/24")
    address(1, "10.77.9.2/24", "10.77.0.2/24")
    do("ip addr del 10.77.9.1/24 dev veth0", "ip addr del 10.77.9.2/24 dev veth1")


def ipv6_disabled() -> None:
    setting("ipv6/conf/default/disable_ipv6", "1")
    one_address_each()


def link_local_only() -> None:
    up()


def router_between() -> None:
    up(routed=True)
    for number in (0, 1):
        address(number, f"10.77.{number + 1}.1/24")
        do(f"ip route replace default via 10.77.{number + 1}.254 dev veth{number} table {SIDES[number][3]}")


def port_down() -> None:
    one_address_each()
    do("ip link set veth0 down")


SETUPS = (
    (one_address_each, ((1, 1), (0, 1), (2, 2))),
    (ipv6_before_ipv4, ((2, 2), (1, 1), (1, 2))),
    (uneven, ((2, 1), (1, 1), (2, 2))),
    (ipv6_only, ((1, 1), (0, 0), (2, 2))),
    (an_address_taken_away, ((2, 2), (1, 1))),
    (ipv6_disabled, ((1, 1), (0, 0))),
    (link_local_only, ((0, 0), (1, 1))),
    (router_between, ((1, 1), (0, 0))),
    (port_down, ((1, 1),)),
)  # fmt: skip
"""Set-up, and the pairs of indexes (of rxe0 and rxe1) to be tried besides those that NCCL takes by ncdiag's word."""


def settled() -> None:
    """Until both ports show what their links are."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        states = [Host().value(f"/sys/class/net/{link}/operstate") for link, _, _, _ in SIDES]
        if states == ["up", "up"] or (
            states[0] == "down" and os.path.exists("/sys/class/infiniband/rxe0/ports/1/state")
        ):
            break
        time.sleep(0.1)
    time.sleep(0.3)


def listening(port: int) -> bool:
    wanted = f":{port:04X} "
    return any(wanted in line and " 0A " in line for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}"))


def connect(tool: str, indexes: tuple[int, int]) -> dict[str, Any]:
    """Both ends of one connection: whether it worked, and what they said."""
    port = 18515
    if tool == "ibv_rc_pingpong":
        common = ["ibv_rc_pingpong", "-p", str(port), "-n", "5", "-s", "1024"]
        index = "-g"
    else:
        common = ["ib_write_bw", "-p", str(port), "-F", "-q", "1", "-n", "5", "-s", "1024"]
        index = "-x"
    begun = time.monotonic()
    server = subprocess.Popen(
        [*common, "-d", "rxe0", index, str(indexes[0])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        while not listening(port) and server.poll() is None and time.monotonic() < begun + LIMIT_S:
            time.sleep(0.05)
        try:
            client = subprocess.run([*common, "-d", "rxe1", index, str(indexes[1]), "127.0.0.1"], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)  # fmt: skip
            said, worked = client.stdout, client.returncode == 0
        except subprocess.TimeoutExpired as error:
            said, worked = (error.stdout or b"") + b"\n(no end)", False
        try:
            worked = server.wait(3 if worked else 1) == 0 and worked
        except subprocess.TimeoutExpired:
            worked = False
    finally:
        server.kill()
    told = server.stdout.read() if server.stdout else b""
    text = [
        line
        for line in (told + said).decode(errors="replace").splitlines()
        if "ail" in line or "ould" in line or "ncompat" in line or "no end" in line
    ]
    return {
        "tool": tool,
        "indexes": indexes,
        "worked": worked,
        "said": text[:4],
        "took_s": round(time.monotonic() - begun, 1),
    }


def taken(tables: list[dict[str, Any]]) -> tuple[int, int]:
    """The index on each device that NCCL takes, by ncdiag's word (the newest NCCL, nothing set)."""
    by_device = {
        table["device"]: gid.choose(gid.from_facts(table["entries"]), "Ethernet", {}).index for table in tables
    }
    return by_device["rxe0"], by_device["rxe1"]


def look(name: str, probes: list[Any]) -> dict[str, Any]:
    recorder = Recorder(Host())
    node = collect(recorder, probes, budget_s=60.0)
    recorder._meta["node"] = name
    recorder.save(f"/out/{name}.tar.gz")
    return {"errors": node.errors, "tables": node.facts.get("roce-gid", [])}


def while_addresses_come_and_go(probe: Any) -> list[list[int]]:
    """What `roce-gid` says of a table that moves: veth0 gets one address after the other meanwhile."""
    stop = threading.Event()

    def move() -> None:
        number = 1
        while not stop.is_set():
            do(
                f"ip addr add 10.77.5.{number}/32 dev veth0",
                f"ip addr del 10.77.5.{(number - 2) % 250 + 1}/32 dev veth0",
            )
            number = number % 250 + 1

    moving = threading.Thread(target=move, daemon=True)
    moving.start()
    try:
        return [table["changed"] for table in probe.collect(Host())]
    finally:
        stop.set()
        moving.join()


def over_rdma() -> dict[str, Any]:
    """`ncdiag reach` between the two ports: sound and wrong GIDs side by side, then faults of the switch."""
    one_address_each()
    settled()
    told = {"healthy": agents.test([(1, 1), (0, 1), (5, 1)])}
    drop = "table netdev lab { chain in { type filter hook ingress device p0 priority 0; udp dport 4791 drop; }; }"
    with open("/tmp/drop.nft", "w") as file:
        file.write(drop)
    do("ip netns exec sw nft -f /tmp/drop.nft")
    told["one-way"] = agents.test([(1, 1)])
    do("ip netns exec sw nft flush ruleset", "ip link set veth0 mtu 9000", "ip link set veth1 mtu 9000")
    told["switch-mtu"] = agents.test([(1, 1)], 9000)
    down()
    return told


def shown(*argv: str) -> str:
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode(
        errors="replace"
    )


def one_setup(
    name: str, setup: Callable[[], None], pairs: Sequence[tuple[int, int]], probes: list[Any]
) -> dict[str, Any]:
    """What ncdiag reads there, what the system's own tools say of it, and the connections tried."""
    setup()
    settled()
    begun = time.monotonic()
    told = look(name, probes)
    read = time.monotonic()
    told["taken"] = taken(told["tables"])
    told["devinfo"] = shown("ibv_devinfo", "-v")
    told["addresses"] = json.loads(shown("ip", "-j", "addr"))
    tries = time.monotonic()
    told["connections"] = [connect("ibv_rc_pingpong", pair) for pair in dict.fromkeys([told["taken"], *pairs])]
    if setup in (one_address_each, uneven):
        told["connections"] += [connect("ib_write_bw", pair) for pair in pairs[:2]]
    parts = {"look": read - begun, "tools": tries - read, "connections": time.monotonic() - tries}
    print(name, {part: round(took, 1) for part, took in parts.items()}, flush=True)
    return told


def main() -> None:
    everything = registry.load()
    concerned = everything.sources(CONCERNED)
    result: dict[str, Any] = {"setups": {}}
    rules()
    for setup, pairs in SETUPS:
        name = setup.__name__.replace("_", "-")
        try:
            result["setups"][name] = one_setup(name, setup, pairs, concerned)
            if setup is one_address_each:
                result["payload"] = shown("python3", "-S", "-I", "/lab/payload.zip")
                look("soft-roce", everything.sources(everything))
                result["moving"] = while_addresses_come_and_go(everything["roce-gid"])
        except Exception:
            result["setups"][name] = {"broke": traceback.format_exc()}
        down()
    begun = time.monotonic()
    try:
        result["reach"] = over_rdma()
    except Exception:
        result["reach"] = {"broke": traceback.format_exc()}
    print("reach", round(time.monotonic() - begun, 1), flush=True)
    with open("/out/result.json", "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
