"""What is wrong with NCCL's variables as such: names it does not know, values it reads otherwise than they look. Pure; travels to nodes.

Source: NVIDIA/nccl src/misc/param.cc (ncclLoadParam: strtoll with base 0; setEnvFile), src/debug.cc, src/graph/paths.cc; see `variables`.
"""

from __future__ import annotations

import difflib
import functools
import re
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ncdiag.nccl.settings import integer
from ncdiag.nccl.variables import TABLE
from ncdiag.nccl.version import Version, dotted, parse_version

LOOKS_LIKE_NCCL = re.compile(r"N[CL]{2,4}_", re.I)
"""Names that were meant for NCCL: NCCL_, and NCLL_, NCL_, nccl_ …"""

GONE = {
    "NCCL_IB_CUDA_SUPPORT": "it went with 2.4; use NCCL_NET_GDR_LEVEL",
    "NCCL_IB_GDR_LEVEL": "it went with 2.4; use NCCL_NET_GDR_LEVEL",
    "NCCL_IB_GDR_READ": "use NCCL_NET_GDR_READ",
    "NCCL_TREE_THRESHOLD": "it went with 2.5; use NCCL_ALGO",
    "NCCL_LL_THRESHOLD": "it went with 2.5; use NCCL_PROTO",
    "NCCL_SINGLE_RING_THRESHOLD": "use NCCL_ALGO and NCCL_PROTO",
    "NCCL_RINGS": "it went with 2.5; use NCCL_GRAPH_FILE",
    "NCCL_MNNVL": "only 2.20 had it; use NCCL_MNNVL_ENABLE",
    "NCCL_TIMEOUT": "NCCL has no time limit for collectives; torch's is the argument timeout of init_process_group",
    "NCCL_COMM_TIMEOUT": "NCCL has no time limit for collectives; torch's is the argument timeout of init_process_group",
    "NCCL_SOCKET_TIMEOUT": "use NCCL_SOCKET_RETRY_CNT and NCCL_SOCKET_RETRY_SLEEP_MSEC (2.24 and newer)",
    "NCCL_IB_RETRY": "use NCCL_IB_RETRY_CNT",
}
"""Names that no current NCCL reads, and what to do instead."""

OLD_NAMES = {"NCCL_MAX_NRINGS": "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS": "NCCL_MIN_NCHANNELS"}
"""Still read, under a newer name too."""

TORCH_NAMES = {
    name: "TORCH_" + name
    for name in ("NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING")
}
"""PyTorch's old names; never NCCL's. PyTorch still reads them and warns."""

MEANT = {
    "NCCL_SOCKET_INTERFACE": "NCCL_SOCKET_IFNAME",
    "NCCL_INTERFACE": "NCCL_SOCKET_IFNAME",
    "NCCL_NET_IFNAME": "NCCL_SOCKET_IFNAME",
    "NCCL_ALGORITHM": "NCCL_ALGO",
    "NCCL_IB_ENABLE": "NCCL_IB_DISABLE",
    "NCCL_NVLS_DISABLE": "NCCL_NVLS_ENABLE",
    "NCCL_LOG_LEVEL": "NCCL_DEBUG",
}
"""Names that people make up, and the ones they mean, where spelling alone does not lead there."""

NOT_NCCLS = re.compile(
    r"NCCL_(?:VERSION|HOME|ROOT|ROOT_DIR|DIR|PATH|LIBRARY|LIBRARIES|LIB_DIR|INCLUDE_DIR|INCLUDE_DIRS|LIB|INC|SO_PATH|DYNAMIC_CHUNK_SIZE|REPO|PKG|PACKAGE"
    r"|TESTS?_\w+|(?:SHARP|IBEXT|UCX|FASTRAK|GPUDIRECTTCPX|SHIMNET|INSPECTOR|PROFILE|PLUGIN|TUNER|EXT|LL128_NET|FLIGHT)_\w+)$"
)
"""Names that images, build systems, network plugins and profilers use."""


class Variable(NamedTuple):
    """One line of the table."""

    kind: str
    since: Optional[Version]
    """None: 2.18 or older."""
    until: Optional[Version]
    """The last release that reads it; None: the newest still does."""
    words: Tuple[str, ...]
    low: Optional[int]
    high: Optional[int]


class Problem(NamedTuple):
    """What is wrong with one setting."""

    name: str
    kind: str
    """`unknown-name`, `gone`, `old-name`, `torch-name`, `too-new`, `value`; `noted` for what may be right all the same."""
    summary: str
    expected: str
    remedy: str


@functools.lru_cache(maxsize=1)
def table() -> Dict[str, Variable]:
    """Name -> variable, for all that NCCL 2.18 to 2.32 reads."""
    found = {}
    for line in TABLE.strip().splitlines():
        name, kind, since, until, values = line.split()
        span = re.match(r"(-?\d+)\.\.(\d+)$", values)
        words = () if span or values == "-" else tuple(values.split(","))
        found["NCCL_" + name] = Variable(
            kind,
            parse_version(since),
            parse_version(until),
            words,
            int(span.group(1)) if span else None,
            int(span.group(2)) if span else None,
        )
    return found


def nearest(name: str, known: Iterable[str], prefix: str = "", cutoff: float = 0.75) -> Optional[str]:
    """The known name that `name` was probably meant to be; None where none is close. `prefix`: what all known names begin with.

    Close are names with the same letters, those whose words all stand in a known name (IFNAME, DISABLE_P2P), and those that
    are spelt alike; the first word counts for most, so that NCCL_IB_ENABLE leads to NCCL_IB_DISABLE.
    """
    wanted = re.sub("^[A-Z]{2,5}_" if prefix else "^$", "", name.upper())
    words = set(re.split(r"[^A-Z0-9]+", wanted)) - {""}
    best: Tuple[float, int, Optional[str]] = (cutoff, 0, None)
    for item in known:
        bare = item[len(prefix) :].upper()
        theirs = re.split(r"[^A-Z0-9]+", bare)
        score = difflib.SequenceMatcher(None, wanted, bare).ratio()
        if theirs[0] and wanted.startswith(theirs[0]):
            score = score * 0.8 + 0.2
        if words and words <= set(theirs):
            score = max(score, 0.9)
        if re.sub(r"[^A-Z0-9]", "", wanted) == "".join(theirs):
            score = 1.0
        if (score, -len(bare)) > best[:2]:
            best = (score, -len(bare), item)
    return best[2]


def name_problem(name: str, version: Optional[Version] = None) -> Optional[Problem]:
    """What is wrong with a name that looks like NCCL's; None when NCCL (of that version, if given) reads it."""
    if name in GONE:
        return Problem(name, "gone", "NCCL does not read %s: %s" % (name, GONE[name]), "not set", "unset " + name)
    if name in TORCH_NAMES:
        return Problem(
            name,
            "torch-name",
            "%s is PyTorch's old name, not NCCL's" % name,
            TORCH_NAMES[name],
            "unset %s and, if it is wanted, export %s" % (name, TORCH_NAMES[name]),
        )
    if name in OLD_NAMES:
        return Problem(
            name,
            "old-name",
            "%s is the old name of %s" % (name, OLD_NAMES[name]),
            OLD_NAMES[name],
            "export %s instead" % OLD_NAMES[name],
        )
    variable = table().get(name)
    if variable is not None:
        return _version_problem(name, variable, version)
    if NOT_NCCLS.match(name):
        return None
    near = MEANT.get(name.upper()) or nearest(name, table(), "NCCL_")
    if near:
        return Problem(
            name,
            "unknown-name",
            "NCCL does not know %s and ignores it; it knows %s" % (name, near),
            near,
            "unset %s; export %s=…" % (name, near),
        )
    return Problem(
        name,
        "noted",
        "NCCL up to 2.32 does not know %s; a plugin may" % name,
        "a name that NCCL knows",
        "unset it if nothing else reads it",
    )


def _version_problem(name: str, variable: Variable, version: Optional[Version]) -> Optional[Problem]:
    if version is None:
        return None
    if variable.since is not None and version < variable.since:
        return Problem(
            name,
            "too-new",
            "NCCL %s ignores %s, which came with %s" % (dotted(version), name, dotted(variable.since)),
            "NCCL %s or newer" % dotted(variable.since),
            "unset it, or use a newer NCCL",
        )
    if variable.until is not None and version > variable.until:
        return Problem(
            name,
            "gone",
            "NCCL %s ignores %s, which %s was the last to read" % (dotted(version), name, dotted(variable.until)),
            "not set",
            "unset " + name,
        )
    return None


def value_problem(name: str, value: str) -> Optional[Problem]:
    """What is wrong with the value of a known variable; None when NCCL reads it as it looks, and for names that are not known."""
    variable = table().get(name)
    if variable is None or not value:
        return None
    found = _number(variable, value) if variable.kind == "int" else _words(variable, value)
    if found is None:
        return None
    summary, expected, remedy = found
    return Problem(name, "value", "%s=%s %s" % (name, value, summary), expected, remedy % {"name": name})


def _range(variable: Variable) -> str:
    return "a whole number" if variable.low is None else "%d to %d" % (variable.low, variable.high or 0)


def _number(variable: Variable, value: str) -> Optional[Tuple[str, str, str]]:
    read = integer(value)
    expected = _range(variable)
    if re.match(r"\s*[+-]?\d", value) is None:
        meant = {"true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0}.get(value.strip().lower())
        if meant == 1:  # what was meant is the contrary of what NCCL does now
            return (
                "is no number: NCCL reads it as 0",
                expected,
                "unset %(name)s if NCCL does right as it is, or export %(name)s=1 if that is meant",
            )
        return (
            "is no number: NCCL reads it as 0",
            expected,
            "export %(name)s=" + (str(meant) if meant is not None else "<number>"),
        )
    if re.match(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|\d+)\s*$", value) is None:
        return "has text behind the number: NCCL reads %s" % read, expected, "export %%(name)s=%s" % read
    if re.match(r"\s*[+-]?0\d", value):
        return "begins with 0 and is read as octal: %s" % read, expected, "export %%(name)s=%d" % int(value)
    if read is not None and not -(1 << 63) <= read < 1 << 63:
        return "is too large: NCCL uses its default", expected, "unset %(name)s"
    if read is not None and variable.low is not None and not variable.low <= read <= (variable.high or 0):
        return "is out of range", expected, "unset %(name)s, or give it a value of " + expected
    return None


def _words(variable: Variable, value: str) -> Optional[Tuple[str, str, str]]:
    known = ", ".join(variable.words)
    folded = {word.lower(): word for word in variable.words}
    if variable.kind in ("word", "level"):
        if value in variable.words or (variable.kind == "level" and value[0].isdecimal()):
            return None
        meant = folded.get(value.strip().lower()) or nearest(value, variable.words)
        return (
            "is ignored: it must be exactly one of %s" % known,
            known,
            "export %(name)s=" + (meant or "<one of them>"),
        )
    if variable.kind == "anycase" and value.lower() not in folded:
        return (
            "is none of %s" % known,
            known,
            "export %(name)s=" + (nearest(value.strip(), variable.words, "", 0.6) or "<one of them>"),
        )
    if variable.kind == "list":
        strange = [
            item for item in re.split(r"[,;:]", value.lstrip("^")) if item.lstrip("^").lower() not in folded and item
        ]
        if strange:
            return "holds %s, which NCCL does not know" % ", ".join(strange), known, "export %(name)s=<of those>"
    return None


class Setting(NamedTuple):
    """One value that holds, and where it comes from."""

    value: str
    origin: str
    """`environment`, or `/etc/nccl.conf line 3`."""


def effective(environ: Mapping[str, str], files: Iterable[Mapping[str, object]]) -> Dict[str, Setting]:
    """Name -> what NCCL sees. `files` in NCCL's order (the user's first), each with `path` and `lines`; nothing set earlier is replaced."""
    found = {name: Setting(value, "environment") for name, value in environ.items()}
    for file in files:
        for line in _lines(file):
            found.setdefault(line["name"], Setting(line["value"], "%s line %s" % (file["path"], line["line"])))
    return found


def _lines(file: Mapping[str, object]) -> List[Dict[str, str]]:
    lines = file.get("lines")
    return lines if isinstance(lines, list) else []


def parse_conf(text: str) -> List[Dict[str, object]]:
    """The settings of a parameter file as NCCL reads it: `line`, `name`, `value`. No blanks are cut, no quotes taken off."""
    found: List[Dict[str, object]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line[:-1] if line.endswith("\r") else line
        if not line.startswith("#") and "=" in line:
            name, _, value = line.partition("=")
            found.append({"line": number, "name": name[:1023], "value": value[:1023]})
    return found
