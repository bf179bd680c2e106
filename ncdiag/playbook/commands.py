"""Which commands a playbook may run: programs that only read, each with the arguments that keep it so.

`refusal` is asked before every command, when a playbook is linted and again when it runs. A command is an argument
list; no shell is there that could split, expand or chain anything. Whatever no rule below allows is refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

_PIECES = {
    "name": r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*",
    "names": r"[A-Za-z0-9_][A-Za-z0-9_.:,@%-]*",
    "address": r"[0-9A-Fa-f.:]+(?:/\d+)?",
    "number": r"\d+",
    "path": r"/[A-Za-z0-9_.:@,+%/-]*",
    "fields": r"[A-Za-z0-9_.,:=]+",
    "time": r"[0-9A-Za-z:+-]+",
    "port": r"(?::\d+|=|or|and|sport|dport|state|established|syn-sent|syn-recv|listening|close-wait|time-wait)",
}

# program -> forms of its arguments, joined by one blank; <piece> stands for a piece above, the rest is a pattern.
# Left out on purpose: options that write, change, send, follow for ever, read commands from a file, leave the netns.
_FORMS: dict[str, tuple[str, ...]] = {
    "cat": (r"<path>(?: <path>)*",),
    "chronyc": (r"(?:-n )?(?:tracking|sources|sourcestats|activity|ntpdata)(?: -v)?",),
    "date": (r"(?:-u|--utc)?(?: ?\+[%A-Za-z0-9:.-]+)?",),
    "dcb": (r"(?:pfc|ets|app|maxrate|buffer) show dev <name>",),
    "dcgmi": (r"discovery -l", r"health -c(?: -g <number>)?", r"nvlink -s"),
    "df": (r"(?:-(?:h|i|hi|T|hT|k))?(?: ?<path>)*",),
    "dmesg": (r"(?:(?:-T|--ctime|-x|--decode|-k|--kernel) ?)*(?:--level=[a-z,]+)?",),
    "docker": (r"ps(?: --no-trunc)?",),
    "ethtool": (r"(?:-(?:i|S|a|k|g|c|m|l|T|-show-fec) )?<name>",),
    "fi_info": (r"(?:-p <name>)?(?: ?-[lv])?",),
    "findmnt": (r"(?:-(?:D|l|n|b) )*(?:-t <names>|-T <path>|-o <fields>|<path>)?(?: -o <fields>)?",),
    "firewall-cmd": (r"--state|--list-all|--list-all-zones",),
    "free": (r"(?:-[hmgb])?",),
    "getent": (r"(?:hosts|ahosts|ahostsv4|ahostsv6|services) <name>(?: <name>)*",),
    "hostname": (r"(?:-[fsiIA])?",),
    "ibdev2netdev": (r"(?:-v)?",),
    "ibstat": (r"(?:-[lsp])?(?: ?<name>(?: <number>)?)?",),
    "ibstatus": (r"(?:<name>)?",),
    "ibv_devices": (r"",),
    "ibv_devinfo": (r"(?:-[lv])?(?: ?-d <name>)?(?: -i <number>)?",),
    "ip": (
        r"(?:-(?:br|brief|o|s|d|details|j|4|6) )*(?:a|addr|address|l|link|r|route|rule|neigh|tunnel|maddr)"
        r"(?: (?:show|list)(?: (?:dev|table|to|type|master|vrf|up|scope) <name>| <name>| up)*)?",
        r"(?:-(?:o|d|j|4|6) )*route get <address>(?: (?:oif|from) <name>)*",
    ),
    "ip6tables": (r"(?:-w )?(?:-t <name> )?-(?:S|L|nL|nvL|L -n|L -n -v)",),
    "iptables": (r"(?:-w )?(?:-t <name> )?-(?:S|L|nL|nvL|L -n|L -n -v)",),
    "journalctl": (
        r"(?:(?:-k|-b|--dmesg|--no-pager|--utc|-q|-x|-u <name>|-n <number>|-p <name>|--since=<time>|--until=<time>"
        r"|-t <name>|--unit=<name>) ?)+",
    ),
    "kubectl": (
        r"get (?:pods?|nodes?|events|daemonsets|statefulsets|leaderworkersets|jobs|resourcequotas|networkpolicies)"
        r"(?: <name>| -A| -n <name>| -o wide| --sort-by=\.[A-Za-z.]+| -l <fields>)*",
        r"describe (?:pod|node) <name>(?: -n <name>)?",
        r"top (?:pod|node)(?:s)?(?: -A| -n <name>)?",
        r"version",
    ),
    "ls": (r"(?:-(?:l|a|la|al|ld|d|1|L|lL|ln|lh) )?<path>(?: <path>)*",),
    "lsblk": (r"(?:-[fmdp])?",),
    "lscpu": (r"(?:-e)?",),
    "lsmod": (r"",),
    "lspci": (r"(?:-(?:v|vv|vvv|nn|n|t|tv|D|k|PP) ?)*(?:-s <name>)?(?: ?-d [0-9A-Fa-f]*:[0-9A-Fa-f]*)?",),
    "mlnx_qos": (r"-i <name>",),
    "modinfo": (r"(?:-F <name> )?<name>",),
    "ncclras": (r"(?:-v ?)?(?:-t <number> ?)?(?:-h <name> ?)?(?:-p <number>)?",),
    "nft": (r"(?:-(?:a|n|j|s) )*list (?:ruleset|tables|chains|sets)",),
    "nproc": (r"(?:--all)?",),
    "numactl": (r"(?:-H|--hardware|-s|--show)",),
    "nvidia-container-cli": (r"info|list|--version",),
    "nvidia-imex-ctl": (r"-N|-q|-a",),
    "nvidia-smi": (
        r"",
        r"-L|--list-gpus|--version",
        r"(?:--query-gpu|--query-compute-apps|--query-remapped-rows|--query-retired-pages)=<fields>"
        r" --format=csv(?:,noheader)?(?:,nounits)?(?: (?:-i|--id=) ?<names>)?",
        r"-q(?: -i <names>)?(?: -d [A-Z_,]+)?",
        r"topo -(?:m|p2p [rwnap])",
        r"nvlink (?:-s|--status|-e|-c|-R)(?: -i <names>)?",
    ),
    "pip": (r"check|freeze|list|--version|show <name>(?: <name>)*",),
    "ps": (r"-e(?: -L)? -o <fields>(?: --sort=-?<name>)?|-(?:C <name>|p <number>) -o <fields>",),
    "ray": (r"status(?: -v)?|--version", r"list (?:nodes|actors|placement-groups|workers|tasks)(?: --limit <number>)?"),
    "rdma": (r"(?:-(?:d|j|p) )*(?:link|dev|system|statistic|resource)(?: show)?(?: link)?(?: <name>(?:/<number>)?)?",),
    "sacct": (r"-j <name>(?: -o <fields>| --format=<fields>| -X| -P)*",),
    "scontrol": (r"show (?:job|node|partition|config|step|reservation)(?: <names>)?",),
    "setpci": (r"-s <name> (?:ECAP_ACS\+0x[46]|CAP_EXP\+0x[0-9a-f]+)\.[wlb]",),
    "show_gids": (r"(?:<name>(?: <number>)?)?",),
    "sinfo": (r"(?:-(?:N|R|l|Nl) ?)*",),
    "squeue": (r"(?:(?:-l|--me|-j <name>|-w <names>|-u <name>) ?)*",),
    "ss": (r"(?:-(?:(?!-)[tulnapimsHo46e])+ ?)+(?: ?<port>)*",),
    "sysctl": (r"(?:-n )?(?:net|kernel|vm|fs)\.[A-Za-z0-9_./-]+(?: (?:net|kernel|vm|fs)\.[A-Za-z0-9_./-]+)*",),
    "systemctl": (r"(?:status|is-active|is-enabled|is-failed|show)(?: --no-pager)?(?: -p <names>)?(?: <name>)+",),
    "timedatectl": (r"(?:status|show|show-timesync|timesync-status)?",),
    "ucx_info": (r"-(?:v|d|b)",),
    "ufw": (r"status(?: verbose)?",),
    "uname": (r"-[arsm]",),
    "uptime": (r"(?:-s)?",),
    "vllm": (r"--version",),
}

_RULES = {
    program: re.compile("|".join(f"(?:{re.sub('<([a-z]+)>', lambda m: _PIECES[m.group(1)], form)})" for form in forms))
    for program, forms in _FORMS.items()
}

PROGRAMS = tuple(sorted(_RULES))

# Content is shown only from the kernel's own trees and from these files; names and sizes also below these folders.
_CONTENT = re.compile(
    r"/proc/.+|/sys/.+|/etc/(?:hosts|hostname|resolv\.conf|nsswitch\.conf|os-release|nccl\.conf|fstab"
    r"|chrony/chrony\.conf|chrony\.conf|ntp\.conf|security/limits\.conf|security/limits\.d/[\w.-]+|modprobe\.d/[\w.-]+|modules-load\.d/[\w.-]+"
    r"|nvidia-imex/nodes_config\.cfg|libibverbs\.d/[\w.-]+|sysctl\.conf|sysctl\.d/[\w.-]+|ld\.so\.conf\.d/[\w.-]+)"
)
_LISTED = re.compile(r"/(?:proc|sys|dev|etc|run|tmp|var/log|lib/modules|usr/lib|usr/lib64|usr/local|opt)(?:/.*)?")
# Memory, environments, other roots and open files of processes, and trees whose reading has effects or blocks.
_CLOSED = re.compile(
    r"/proc/(?:.+/)?(?:root|cwd|fd|fdinfo|exe|map_files|mem|environ|auxv|maps|smaps|smaps_rollup|numa_maps|pagemap|cmdline)(?:/.*)?"
    r"|/proc/(?:kcore|kmsg|kallsyms|kpage.*|sysrq-trigger|vmcore|keys|key-users|acpi|bus|tty)(?:/.*)?"
    r"|/sys/(?:kernel/(?:debug|tracing|security|config)|firmware)(?:/.*)?"
    r"|/etc/(?:shadow|gshadow|sudoers|ssl/private|ssh)(?:.*)?"
)
_PROC_CMDLINE = "/proc/cmdline"


def refusal(argv: Sequence[str]) -> str | None:
    """Why this command may not be run; None when it may."""
    program, arguments = argv[0], list(argv[1:])
    rule = _RULES.get(program)
    if rule is None:
        return f"{program!r} is not on the list of programs that only read"
    strange = next((a for a in arguments if not a or re.search(r"[\s\x00-\x1f\x7f]", a)), None)
    if strange is not None:
        return f"the argument {strange!r} is empty or holds white space"
    if not rule.fullmatch(" ".join(arguments)):
        return f"no rule of {program!r} allows these arguments: {' '.join(arguments)}"
    if program in ("cat", "ls"):
        paths = (argument for argument in arguments if argument.startswith("/"))
        return next((why for path in paths if (why := path_refusal(path, content=program == "cat"))), None)
    return None


def path_refusal(path: str, *, content: bool) -> str | None:
    """Why this path may not be read (`content`) or listed; None when it may."""
    if path == _PROC_CMDLINE:
        return None
    if posixpath.normpath(path) != path.rstrip("/"):
        return f"the path {path!r} is not written plainly (.., ., //)"
    allowed = _CONTENT if content else _LISTED
    if not allowed.fullmatch(path) or _CLOSED.fullmatch(path):
        return f"the path {path!r} lies outside what a playbook may read"
    return None
