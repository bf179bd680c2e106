"""config.json of a model, as one flat view of its language model.

Multimodal configs nest the language model (`text_config`, `llm_config`, ...); keys the nested part lacks are
looked up outside it. Numbers are checked once, here: what comes out is a whole number within `LIMITS`.
Source: the `configuration_*.py` classes of transformers (key names and defaults).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_CONFIG_BYTES = 16 * 2**20  # the largest public config.json is below 1 MiB
NESTED = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
ALIASES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "dim", "model_dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "intermediate_size": ("ffn_hidden_size", "n_inner", "ffn_dim", "inner_dim", "d_inner_mlp"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx"),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
}
LIMITS: Mapping[str, int] = {"num_hidden_layers": 4096, "num_layers": 4096}
LEAST: Mapping[str, int] = dict.fromkeys(
    (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "n_kv_heads",
        "vocab_size",
        "head_dim",
        "intermediate_size",
        "moe_intermediate_size",
        "expert_ffn_hidden_size",
        "expert_intermediate_size",
    ),
    1,
)
"""What no model can have none of. 0 where a key is not here."""
MAX_NUMBER = 2**40
MAX_LAYERS = LIMITS["num_hidden_layers"]
MAX_ITEMS = 2 * MAX_LAYERS
MAX_FACTOR = 10000


class ConfigError(ValueError):
    """The input cannot be read as a model: one sentence with the file, the key and the way out."""


@dataclass(frozen=True)
class ModelConfig:
    """One config.json. `text` is the language model's part, `outer` the whole file, `defaults` fill absent keys."""

    path: Path
    outer: Mapping[str, Any]
    text: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model_type(self) -> str:
        return _word(self.text.get("model_type")) or _word(self.outer.get("model_type")) or "unknown"

    @property
    def outer_type(self) -> str:
        return _word(self.outer.get("model_type")) or "unknown"

    @property
    def architecture(self) -> str:
        names = self.outer.get("architectures") or self.text.get("architectures")
        if isinstance(names, list) and names and isinstance(names[0], str):
            return names[0]
        return self.model_type

    def raw(self, key: str) -> Any:
        """The value of `key`, of its aliases, or the family's default; None where nothing says it."""
        for name in (key, *ALIASES.get(key, ())):
            if self.text.get(name) is not None:
                return self.text[name]
        if key in self.text:  # null is an answer: no window, no head_dim of its own
            return None
        return self.defaults.get(key)

    def says(self, key: str) -> bool:
        """Whether the file itself has the key, under any of its names."""
        return any(name in self.text for name in (key, *ALIASES.get(key, ())))

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number >= 0. Raises ConfigError when it is absent without a default, or no such number."""
        value = self.raw(key)
        if value is None:
            if default is None:
                raise ConfigError(f"{self.path}: no {key} in the config; ncdiag plan needs it to count parameters")
            return default
        return self.whole(key, value)

    def whole(self, key: str, value: Any) -> int:
        """`value`, of `key`, as a whole number in its bounds. Raises ConfigError."""
        least, most = LEAST.get(key, 0), LIMITS.get(key, MAX_NUMBER)
        if isinstance(value, float) and value == value and abs(value) < MAX_NUMBER and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{self.path}: {key} is {shown(value)}; expected a whole number, {least} or more")
        if not least <= value <= most:
            raise ConfigError(f"{self.path}: {key} is {shown(value)}; expected {least} to {most:,}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.raw(key)
        return default if value is None else bool(value)

    def items(self, key: str) -> list[Any]:
        """A list; empty where there is none. Raises ConfigError for one longer than any model has layers."""
        value = self.raw(key)
        if isinstance(value, list) and len(value) > MAX_ITEMS:
            raise ConfigError(f"{self.path}: {key} has {len(value)} entries; expected at most {MAX_ITEMS}")
        return value if isinstance(value, list) else []

    def factor(self, key: str, default: float) -> float:
        """A number such as 0.5 or 4. Raises ConfigError when it is none, or out of 0 to 10,000."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_FACTOR:
            raise ConfigError(f"{self.path}: {key} is {shown(value)}; expected a number from 0 to {MAX_FACTOR}")
        return float(value)

    def part(self, key: str) -> Mapping[str, Any]:
        """A nested object of the language model's part, else of the whole file; empty where there is none."""
        for source in (self.text, self.outer):
            if isinstance(source.get(key), dict):
                return source[key]
        return {}

    def sub(self, part: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> ModelConfig:
        """The same file seen through one nested object (a vision tower, `attn_config`)."""
        return ModelConfig(self.path, self.outer, part, defaults or {})


def load_config(path: Path) -> ModelConfig:
    """Reads MODEL_DIR or config.json. Raises ConfigError for everything that is not a model's config."""
    try:
        folder = path.is_dir()
        file = path / "config.json" if folder else path
        there = file.exists()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if not there:
        hint = f"no config.json in {path}" if folder else f"no such file: {file}"
        raise ConfigError(f"{hint}; give a model's folder or its config.json")
    return parse_config(read_json(file, MAX_CONFIG_BYTES), file)


def read_json(file: Path, limit: int) -> dict[str, Any]:
    """One JSON object of at most `limit` bytes. Raises ConfigError."""
    try:
        if not file.is_file():
            raise ConfigError(f"{file} is not a regular file")
        if file.stat().st_size > limit:
            raise ConfigError(f"{file} is {file.stat().st_size} bytes; more than {limit} is not a config")
        data = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file} is not JSON: {str(error).splitlines()[0][:120]}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{file} holds a {type(data).__name__}, not a JSON object")
    return data


def parse_config(outer: Mapping[str, Any], path: Path) -> ModelConfig:
    text: Mapping[str, Any] = outer
    for _ in range(2):  # thinker_config holds a text_config of its own
        nested = next((text[key] for key in NESTED if _is_part(path, key, text.get(key))), None)
        if nested is None:
            break
        text = nested
    return ModelConfig(path, outer, text)


def _is_part(path: Path, key: str, value: Any) -> bool:
    """Whether there is such a nested object. Raises ConfigError for what is something else."""
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{path}: {key} is {shown(value)}; expected an object, the config of the language model")
    return bool(value)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def shown(value: Any) -> str:
    """For a message of one line."""
    try:
        text = repr(value)
    except ValueError:  # an int of more than 4300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "..."
