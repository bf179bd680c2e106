"""One variable explained: what it does, which releases read it, what it may hold. Pure."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ncdiag.nccl import environment, frameworks, meanings
from ncdiag.nccl.version import dotted

_KINDS = {
    "int": "a number, read as C reads it: text behind it is ignored, words are 0",
    "word": "exactly one of the words",
    "anycase": "one of the words, in capitals or not",
    "list": "words with commas between, in capitals or not",
    "level": "a distance, in exact capitals (or its old number)",
    "text": "text",
    "any": "not known: seen in the library only",
}
_OWNERS = (("VLLM_", "vLLM"), ("RAY_", "Ray"), ("GLOO_", "gloo"), ("TP_", "TensorPipe"), ("TORCH_", "torch"),
           ("CUDA_", "CUDA"), ("NVIDIA_", "the container runtime"), ("HF_", "Hugging Face"))  # fmt: skip


class Meaning(NamedTuple):
    default: str
    effect: str


class Explanation(NamedTuple):
    name: str
    read_by: str
    effect: Optional[str]  # None: known by name only
    default: Optional[str]
    releases: Optional[str]
    values: Optional[str]
    notes: List[str]

    def as_dict(self) -> Dict[str, Any]:
        return self._asdict()


@functools.lru_cache(maxsize=1)
def _meanings() -> Dict[str, Meaning]:
    found = {}
    for prefix, text in (("NCCL_", meanings.NCCL), ("", meanings.OTHERS)):
        for line in text.strip().splitlines():
            name, default, effect = (part.strip() for part in line.split(" | ", 2))
            found[prefix + name] = Meaning("none" if default == "-" else default, effect)
    return found


def known() -> List[str]:
    """Every name that can be explained."""
    vllm, others = frameworks.known()
    return sorted({*environment.table(), *environment.GONE, *environment.TORCH_NAMES, *vllm, *others, *_meanings()})


def explain(name: str) -> Optional[Explanation]:
    """None for a name that is not known; `nearest(name)` then says what may have been meant."""
    variable = environment.table().get(name)
    meaning = _meanings().get(name)
    if variable is not None:
        since = dotted(variable.since) if variable.since else "2.18 or older"
        until = dotted(variable.until) if variable.until else "the newest"
        old = environment.OLD_NAMES.get(name)
        return Explanation(
            name,
            "NCCL",
            *_told(meaning),
            f"{since} to {until}",
            _values(variable),
            [f"old name of {old}"] if old else [],
        )
    problem = environment.name_problem(name)
    if problem is not None and problem.kind in ("gone", "torch-name"):
        reader = "torch, under its new name too" if problem.kind == "torch-name" else "no current release"
        return Explanation(name, reader, problem.summary, None, None, None, [problem.remedy])
    vllm, others = frameworks.known()
    if name in vllm or name in others or meaning is not None:
        owner = next((who for start, who in _OWNERS if name.startswith(start)), "torch.distributed and its launchers")
        values = "a whole number; anything else ends vLLM with a ValueError" if vllm.get(name) else None
        return Explanation(name, owner, *_told(meaning), None, values, [])
    return None


def nearest(name: str) -> Optional[str]:
    """The known name that `name` was probably meant to be."""
    problem = environment.name_problem(name) if environment.LOOKS_LIKE_NCCL.match(name) else None
    if problem is not None and problem.kind == "unknown-name":
        return problem.expected
    return frameworks.slip(name, known())


def _told(meaning: Optional[Meaning]) -> Tuple[Optional[str], Optional[str]]:
    return (meaning.effect, meaning.default) if meaning else (None, None)


def _values(variable: environment.Variable) -> str:
    text = _KINDS[variable.kind]
    if variable.words:
        return f"{text}: {', '.join(variable.words)}"
    return f"{text}; {variable.low} to {variable.high}" if variable.low is not None else text
