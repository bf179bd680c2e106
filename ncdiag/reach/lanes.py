"""One node's ends of RDMA connections, in a process of its own: a driver that crashes or hangs takes nothing else along. Travels to nodes.

Reads a line of JSON, does it, writes a line of JSON: `open` (the lanes' ports), `connect` (the other ends), `send`. A lane is one port
here and one there; all lanes of a pair are tested at the same time.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from ncdiag.reach import verbs

SIZES = (64, 1 << 14)
"""Bytes of the messages each way: one of a single small packet, one of several full-sized ones. Both buffers fit in a memlock limit of 64 KiB."""

SEND_S = 1.6
"""Longer than the retries of a lost message may take (see verbs.TIMEOUT)."""

LOCAL_WRITE = 1
ETHERNET = "Ethernet"


class Lane:
    """`port`: device, number, link_layer, gid_index, and tc, sl, pkey as NCCL sets them. Raises VerbsError."""

    def __init__(self, library: verbs.Library, port: Dict[str, Any]) -> None:
        self._library, self._port = library, port
        self._context = library.device(port["device"])
        self._memory = ctypes.create_string_buffer(2 * SIZES[1])
        self._held: List[Any] = []
        self._pd = self._own("dealloc_pd", library.call("alloc_pd", ctypes.c_void_p(self._context)))
        region = self._own("dereg_mr", library.call("reg_mr", self._pd, self._memory, len(self._memory), LOCAL_WRITE))
        self._key = verbs.key_of(region)
        self._queue = self._own("destroy_cq", library.call("create_cq", self._context, 16, None, None, 0))
        wanted = verbs.InitAttr(None, self._queue, self._queue, None, verbs.Cap(4, 4, 1, 1, 0), verbs.RC, 1)
        self._qp = self._own("destroy_qp", library.call("create_qp", ctypes.c_void_p(self._pd), ctypes.byref(wanted)))
        attr = verbs.Attr(qp_state=verbs.INIT, pkey_index=port["pkey"], port_num=port["number"])
        library.modify(self._qp, attr, verbs.MASK_INIT, "ibv_modify_qp to INIT")
        for _ in SIZES:
            self._post(SIZES[1], receive=True)
        told = library.port(self._context, port["number"])
        self.end = {
            "qp": verbs.number_of(self._qp),
            "psn": random.randrange(1 << 24),
            "gid": library.gid(self._context, port["number"], port["gid_index"]).hex(),
            **told,
        }
        """What the other end has to know."""

    def _own(self, end: str, pointer: int) -> int:
        self._held.append((end, pointer))
        return pointer

    def close(self) -> None:
        for end, pointer in reversed(self._held):
            self._library.destroy(end, pointer)

    def _post(self, length: int, *, receive: bool) -> None:
        start = ctypes.addressof(self._memory) + (0 if receive else SIZES[1])
        code = verbs.post(self._context, self._qp, start, length, self._key, receive=receive)
        self._library.check("ibv_post_recv" if receive else "ibv_post_send", code or 0)

    def connect(self, peer: Dict[str, Any]) -> None:
        """Raises VerbsError: the address cannot be resolved, the GID is empty or of another kind …"""
        port, over_ip = self._port, self._port["link_layer"] == ETHERNET
        attr = verbs.Attr(
            qp_state=verbs.RTR, path_mtu=min(self.end["mtu"], peer["mtu"]), rq_psn=peer["psn"], dest_qp_num=peer["qp"],
            max_dest_rd=1, min_rnr_timer=12, timeout=verbs.TIMEOUT, retry_cnt=verbs.RETRIES, rnr_retry=verbs.RETRIES,
            sq_psn=self.end["psn"], max_rd=1,
        )  # fmt: skip
        attr.ah.dlid, attr.ah.sl, attr.ah.port_num, attr.ah.is_global = peer["lid"], port["sl"], port["number"], over_ip
        if over_ip:
            ctypes.memmove(attr.ah.dgid, bytes.fromhex(peer["gid"]), 16)
            attr.ah.sgid_index, attr.ah.hop_limit, attr.ah.traffic_class = port["gid_index"], 255, port["tc"]
        self._library.modify(self._qp, attr, verbs.MASK_RTR, "ibv_modify_qp to RTR")
        attr.qp_state = verbs.RTS
        self._library.modify(self._qp, attr, verbs.MASK_RTS, "ibv_modify_qp to RTS")

    def send(self) -> Dict[str, Any]:
        """`received`: messages that came whole; `sent`: those that were acknowledged; `status`: why one was not."""
        for size in SIZES:
            self._post(size, receive=False)
        told: Dict[str, Any] = {"received": 0, "sent": 0, "status": None}
        end = time.monotonic() + SEND_S
        while time.monotonic() < end and (told["received"] < len(SIZES) or told["sent"] < len(SIZES)):
            came = verbs.poll(self._context, self._queue)
            for one in came:
                if not one.status:
                    told["received" if one.received else "sent"] += 1
                elif told["status"] is None and not one.received:
                    told["status"] = self._library.status(one.status)
            if told["status"] and not came:
                break
            time.sleep(0 if came else 0.001)
        return told


class Ends:
    """The lanes of the pair at hand."""

    def __init__(self, library: verbs.Library) -> None:
        self._library = library
        self._lanes: List[Optional[Lane]] = []

    def open(self, ports: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Each lane's end, or `{"why"}`; the lanes before are closed."""
        for lane in self._lanes:
            if lane is not None:
                lane.close()
        self._lanes, told = [], []
        for port in ports:
            try:
                self._lanes.append(Lane(self._library, port))
                told.append(self._lanes[-1].end)  # type: ignore[union-attr]
            except verbs.VerbsError as error:
                self._lanes.append(None)
                told.append({"why": str(error), "code": error.code})
        return told

    def connect(self, peers: List[Optional[Dict[str, Any]]]) -> List[Optional[Dict[str, Any]]]:
        """For each lane None, or `{"why", "code"}`; lanes whose peer is None are left out from here on."""

        def one(index: int, lane: Lane) -> Optional[Dict[str, Any]]:
            peer = peers[index]
            if peer is None:
                self._lanes[index] = None
                return None
            try:
                lane.connect(peer)
            except verbs.VerbsError as error:
                return {"why": str(error), "code": error.code}
            return None

        return self._each(one)

    def send(self, wanted: List[bool]) -> List[Optional[Dict[str, Any]]]:
        return self._each(lambda index, lane: lane.send() if wanted[index] else None)

    def _each(self, work: Callable[[int, Lane], Any]) -> List[Any]:
        """All lanes at once: one that waits for an address to be resolved holds up no other."""
        results: List[Any] = [None] * len(self._lanes)

        def run(index: int, lane: Lane) -> None:
            results[index] = work(index, lane)

        lanes = [(index, lane) for index, lane in enumerate(self._lanes) if lane is not None]
        threads = [threading.Thread(target=run, args=item, daemon=True) for item in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


def main() -> None:
    """Until standard input ends. The first line says whether there is a library."""
    try:
        ends = Ends(verbs.Library())
    except OSError as error:
        print(json.dumps({"why": str(error)}), flush=True)
        return
    print(json.dumps({"why": None}), flush=True)
    for line in sys.stdin:
        name, argument = json.loads(line)
        print(json.dumps(getattr(ends, name)(argument)), flush=True)
