"""Masks secrets in text, environments, command lines and JSON. Travels to nodes.

Two kinds are recognised: values whose *name* says that they are secret, and values whose *form* does.
What is masked reads `<redacted>`; names and lengths of lines stay, so that a log can still be followed.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, List, Mapping, Match, Sequence, Tuple

MASK = "<redacted>"
SHORT = 400
"""Characters of a string whose masked form is remembered."""

_SECRET_WORD = (
    r"(?:passwords?|passwd|passphrase|pwd|secrets?|credentials?|tokens?|api[_-]?keys?|apikey|access[_-]?keys?"
    r"|private[_-]?keys?|signing[_-]?keys?|encryption[_-]?keys?|auth[_-]?keys?|account[_-]?keys?|authorization|auth"
    r"|cookies?|session[_-]?keys?|bearer|sas|dsn|connection[_-]?string|webhook[_-]?url)"
)
# A name is secret when one of its words is: HF_TOKEN, --api-key, aws_secret_access_key; not TOKENIZER, MONKEY, max_tokens, RAY_AUTH_MODE.
_NAME = re.compile(
    r"(?:^|[_\-.])" + _SECRET_WORD + r"(?:$|[_\-.](?:id|value|file|b64|base64|data|json|content|header|\d+)$)", re.I
)
_NOT_SECRET = re.compile(
    r"(?:max|min|num|total|new|per|kv|prompt|completion|cached|batched|pad|eos|bos|stop)[\w-]*[_-]tokens?(?:$|[_-])"
    r"|tokens?[_-]per|^PWD$|^OLDPWD$|_auth[_-]mode$|auth_sock$",
    re.I,
)

_FORMS = re.compile(
    "|".join(
        (
            r"(?P<pem>-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))",
            r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b",
            r"\bgh[opsru]_[A-Za-z0-9]{20,}\b",
            r"\bgithub_pat_[A-Za-z0-9_]{20,}\b",
            r"\bglpat-[A-Za-z0-9_-]{16,}\b",
            r"\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}\b",
            r"\bnvapi-[A-Za-z0-9_-]{16,}",
            r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
            r"\bAIza[A-Za-z0-9_-]{30,}",
            r"\bya29\.[A-Za-z0-9_-]{16,}",
            r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
            r"\bxapp-[A-Za-z0-9-]{10,}",
            r"\bhooks\.slack\.com/services/[A-Za-z0-9/]+",
            r"\bdop_v1_[a-f0-9]{32,}\b",
            r"\bnpm_[A-Za-z0-9]{30,}\b",
            r"\bpypi-[A-Za-z0-9_-]{30,}",
            r"\bwandb_v1_[A-Za-z0-9_]{16,}",
            r"\bAccountKey=[A-Za-z0-9+/=]{16,}",
            r"\b[?&]?sig=[A-Za-z0-9%+/=]{20,}",
            r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
            r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,31}://[^\s:/@'\"]*:)[^\s@/'\"]+(?=@)",
            r"(?P<bearer>\b(?:bearer|basic|token)\s+)(?=[A-Za-z0-9._~+/-]*\d)[A-Za-z0-9._~+/-]{16,}=*",
        )
    ),
    re.I,
)
# a cheap look before the costly one: what every form above needs
_HINT = re.compile(
    r"PRIVATE KEY|hf_|api_org_|gh[opsru]_|github_pat_|glpat-|[spr]k[-_]|nvapi-|A[KS]IA|AIza|ya29|xox|xapp-|hooks\.slack|dop_v1|npm_|pypi-"
    r"|wandb_v1|AccountKey|sig=|eyJ|://|bearer|basic|token",
    re.I,
)
_VALUE = r"(?P<value>(?<=[\"'])[^\"'\n]*|[^\s\"',;&}\])\x00]+)"
# bounded, so that a word of a million letters costs no more than a million letters
_ASSIGNMENT = re.compile(
    r"(?P<lead>(?P<quote>[\"']?)(?P<name>[A-Za-z][A-Za-z0-9_.-]{0,127})(?P=quote)\s*[=:]\s*[\"']?)" + _VALUE
)
_OPTION = re.compile(r"(?P<lead>(?<![\w-])--?(?P<name>[A-Za-z][A-Za-z0-9_.-]*)\s+[\"']?)" + _VALUE)
_NO_VALUES = ("none", "null", "true", "false", "bearer", "basic")
_SECRET_HINT = re.compile(_SECRET_WORD, re.I)


@functools.lru_cache(maxsize=1 << 14)
def is_secret_name(name: str) -> bool:
    """Whether a variable, option or key of that name holds a secret."""
    return bool(_NAME.search(name.lstrip("-"))) and not _NOT_SECRET.search(name.lstrip("-"))


def _mask_form(match: Match[str]) -> str:
    return (match.group("scheme") or match.group("bearer") or "") + MASK


def _mask_value(match: Match[str]) -> str:
    value = match.group("value")
    if not value or MASK in value or not is_secret_name(match.group("name")) or value.lower() in _NO_VALUES:
        return match.group(0)
    return match.group("lead") + MASK


def text(value: str) -> str:
    """`value` with every secret in it masked."""
    return _known(value) if len(value) <= SHORT else _masked(value)


def _masked(value: str) -> str:
    if _HINT.search(value):
        value = _FORMS.sub(_mask_form, value)
    if _SECRET_HINT.search(value):
        value = _OPTION.sub(_mask_value, _ASSIGNMENT.sub(_mask_value, value))
    return value


_known = functools.lru_cache(maxsize=1 << 16)(_masked)
"""The same short strings come again with every node."""


def environ(variables: Mapping[str, str]) -> Dict[str, str]:
    """An environment whose secret variables are masked and whose other values are searched."""
    return {name: MASK if value and is_secret_name(name) else text(value) for name, value in variables.items()}


def argv(arguments: Sequence[str]) -> List[str]:
    """A command line whose secret options are masked, as `--key=value` and as `--key value`."""
    out: List[str] = []
    after_secret = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if after_secret and not argument.startswith("-"):
            out.append(MASK)
        elif equals and value and is_secret_name(name):
            out.append(name + "=" + MASK)
        else:
            out.append(text(argument))
        after_secret = argument.startswith("-") and not equals and is_secret_name(name)
    return out


def data(value: Any) -> Any:
    """JSON data with every secret masked: strings and keys searched, and values under secret names."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (dict, Mapping)):  # dict first: asking for the abstract class is slow
        return dict(map(_item, value.items()))
    if isinstance(value, (list, tuple)):
        return [data(item) for item in value]
    return value


def _item(pair: Tuple[Any, Any]) -> Tuple[Any, Any]:
    key, item = pair
    if not isinstance(key, str):
        return key, data(item)
    if isinstance(item, str):
        return text(key), MASK if item and is_secret_name(key) else text(item)
    return text(key), data(item)


def nul_separated(value: str, *, arguments: bool) -> str:
    """The content of /proc/PID/environ, or of /proc/PID/cmdline with `arguments`, masked."""
    parts = value.split("\0")
    if arguments:
        return "\0".join(argv(parts))
    masked = []
    for part in parts:
        name, equals, content = part.partition("=")
        masked.append(name + "=" + MASK if equals and content and is_secret_name(name) else text(part))
    return "\0".join(masked)
