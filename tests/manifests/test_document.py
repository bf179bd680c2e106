"""Files that are no manifests, or mean harm: one clear error each, with file and line, and soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ncdiag.manifests.document import MAX_BYTES, ManifestError, parse, read
from tests.manifests.bench import ncdiag

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod\nspec: [1, 2\n", "m.yaml:3: not valid YAML"),
        ("kind: Pod\nspec:\n\treplicas: 1\n", "not valid YAML"),
        ("kind: {{ .Values.kind }}\n", "render it first"),
        ("a: b\n", "it has no kind"),
        ("- kind: Pod\n", "it has no kind"),
        ("just text\n", "it has no kind"),
        ("", "no object"),
        ("---\n---\n", "no object"),
        ("kind: Pod\nkind: Job\n", "m.yaml:2: the key 'kind' stands here twice"),
        ("kind: Pod\n? [a, b]\n: c\n", "a key must be plain text"),
        ("kind: Pod\nspec: " + "[" * 500 + "]" * 500, "nested deeper than 64 levels"),
        ("kind: Pod\nspec: " + "[" * 200000, "nest"),
        ("kind: Pod\nspec: &a {b: *a}\n", "nested deeper than 64 levels (an alias that holds itself?)"),
        ("kind: Pod\n" + BOMB, "more than 100000 values"),
        ("kind: Pod\n" + MERGE_BOMB, "more than 100000 values"),
        ("kind: Pod\nspec: *nowhere\n", "m.yaml:2: not valid YAML: found undefined alias"),
        ("kind: Pod\nname: \x00\n", "not valid YAML"),
        ("kind: Pod\n" + "".join(f"k{number}: [{'a, ' * 30}]\n" for number in range(3500)), "more than 100000 values"),
    ],
)  # fmt: skip
def test_it_is_one_error_and_soon(text: str, words: str) -> None:
    started = time.monotonic()
    with pytest.raises(ManifestError) as caught:
        parse(text, "m.yaml")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 10


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ManifestError, match="larger than 2 MiB"):
        read(str(file))
    file.write_bytes(b"kind: \xff\n")
    with pytest.raises(ManifestError, match="not UTF-8"):
        read(str(file))


def test_the_command_says_it_in_one_line_and_ends_with_2(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("kind: Pod\n" + BOMB)
    code, said = ncdiag("k8s", "lint", str(file))
    assert code == 2
    assert f"Error: {file}:" in said
    assert ncdiag("k8s", "lint", str(tmp_path / "absent.yaml"))[0] == 2


def test_values_keep_their_types_and_lines() -> None:
    text = "kind: Pod\nspec: &base\n  a: 1\n  b: '1'\n  c: yes\n  d: 2020-01-01\n  e:\n---\nkind: Job\nspec:\n  <<: {x: 1, y: 2}\n  y: 3\n"
    pod, job = parse(text, "m.yaml")
    assert pod.data["spec"] == {"a": 1, "b": "1", "c": True, "d": "2020-01-01", "e": None}
    assert pod.line(("spec", "b")) == 4
    assert pod.line(("spec", "b", "absent", 3)) == 4
    assert job.data["spec"] == {"x": 1, "y": 3}
    assert job.line(("spec", "y")) == 12


def test_the_items_of_a_list_are_objects_of_their_own() -> None:
    one, two = parse("kind: List\nitems:\n- kind: Pod\n  spec: {a: 1}\n- kind: Service\n", "m.yaml")
    assert (one.kind, one.line(("spec",)), two.line(())) == ("Pod", 4, 5)
