"""Counted bytes equal the published index of each model, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.sizing.cache import layer_caches, token_bytes
from ncdiag.sizing.config import parse_config
from ncdiag.sizing.decoder import build, open_decoder
from ncdiag.sizing.formats import quantisation_of
from ncdiag.sizing.quantise import DTYPE_BYTES, dtype_of, stored_bytes
from tests.sizing.public_models import CONFIGS, KV_BYTES_PER_TOKEN, PARAMETERS, TOTAL_SIZES


def counted_bytes(name: str) -> float:
    decoder = open_decoder(parse_config(CONFIGS[name], Path("config.json")))
    inventory = build(decoder)
    assert not inventory.notes
    size = DTYPE_BYTES[dtype_of(decoder.config)[0]]
    quantisation = quantisation_of(decoder.config, size)
    return sum(stored_bytes(weight, quantisation, size) for weight in (*inventory.all(), *inventory.copies))


@pytest.mark.parametrize("name", TOTAL_SIZES)
def test_counted_bytes_equal_the_published_index(name: str) -> None:
    assert counted_bytes(name) == TOTAL_SIZES[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_counted_parameters_equal_the_published_count(name: str) -> None:
    assert build(open_decoder(parse_config(CONFIGS[name], Path("config.json")))).parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", KV_BYTES_PER_TOKEN)
def test_cache_bytes_of_a_token(name: str) -> None:
    decoder = open_decoder(parse_config(CONFIGS[name], Path("config.json")))
    assert token_bytes(layer_caches(decoder, 2, 2)) == KV_BYTES_PER_TOKEN[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_public_config_is_a_known_family(name: str) -> None:
    assert open_decoder(parse_config(CONFIGS[name], Path("config.json"))).known
