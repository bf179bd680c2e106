"""NCCL_IB_HCA in all its forms."""

from __future__ import annotations

import pytest

from ncdiag.nccl.hca import Port, disabled, select

SIXTEEN = [Port(f"mlx5_{i}", 1) for i in range(16)]
DUAL = [
    Port("mlx5_0", 1),
    Port("mlx5_0", 2),
    Port("mlx5_1", 1, active=False),
    Port("rdmap0s31", 1, link_layer="Unspecified"),
]


def taken(ports, value, version=None):
    return [f"{port.device}:{port.number}" for port in select(ports, value, version).taken]


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        (None, list(range(16))),
        ("", list(range(16))),
        ("mlx5", list(range(16))),
        ("mlx5_1", [1, *range(10, 16)]),
        ("=mlx5_1", [1]),
        ("=mlx5_1,mlx5_3", [1, 3]),
        ("=mlx5_3,mlx5_1", [1, 3]),
        ("=mlx5_1:1", [1]),
        ("=mlx5_1:2", []),
        ("^mlx5_1", [0, *range(2, 10)]),
        ("^=mlx5_1", [i for i in range(16) if i != 1]),
        ("^=mlx5_1:2", list(range(16))),
        ("=^mlx5_1", []),
        ("^", []),
        (",,=", []),
        ("mlx5_0, mlx5_2", [0]),
        ("=mlx5_4:1:0:0", [4]),
    ],
)
def test_forms(value, devices):
    assert taken(SIXTEEN, value) == [f"mlx5_{i}:1" for i in devices]


def test_only_active_ports_of_the_two_link_layers():
    selection = select(DUAL, None)
    assert [(port.device, port.number) for port in selection.taken] == [("mlx5_0", 1), ("mlx5_0", 2)]
    assert selection.left_out == ["mlx5_1:1 not ACTIVE", "rdmap0s31:1 has link layer Unspecified"]
    assert taken(DUAL, "mlx5_0:2") == ["mlx5_0:2"]


def test_an_empty_port_means_every_port_only_since_2_30_7():
    assert taken(DUAL, "mlx5_0:", (2, 30, 7)) == ["mlx5_0:1", "mlx5_0:2"]
    assert taken(DUAL, "mlx5_0:", (2, 27, 3)) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("mlx5_1", "also takes mlx5_10"),
        ("mlx4_0", "matches no device"),
        ("mlx5_0, mlx5_2", "has a space in it"),
        ("=^mlx5_0", "write `^=`"),
        ("^", "excludes every device"),
        ("=mlx5_3:2", "names a port that mlx5_3 does not have"),
    ],
)
def test_notes(value, words):
    assert any(words in note for note in select(SIXTEEN, value).notes)


@pytest.mark.parametrize("value", [None, "", "mlx5", "=mlx5_1", "^=mlx5_0,mlx5_1", "mlx5_12"])
def test_no_note_where_all_is_plain(value):
    assert not select(SIXTEEN, value).notes


@pytest.mark.parametrize(("value", "off"), [("1", True), ("0", False), ("true", False), ("", False), ("2", True)])
def test_disabled(value, off):
    assert disabled({"NCCL_IB_DISABLE": value}) is off
