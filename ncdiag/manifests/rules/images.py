"""Images: what talks to each other in one engine is of one version.

Source: vLLM, "Multi-node serving" (the same image on all nodes); Ray, "Version mismatch" (Ray and Python must be the same in all processes of a cluster).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ncdiag.manifests.scene import Scene
from ncdiag.model import Finding, fail, ok, warn

_TAG = re.compile(r"v?(?P<version>\d+(?:\.\d+)+(?:[.-]?(?:post|rc|dev|a|b)\d+)*)(?![\d.])")
_PYTHON = re.compile(r"(?<![a-z])py(\d{2,3})(?!\d)")


class Image(NamedTuple):
    """`registry:5000/vllm/vllm-openai:v0.10.1@sha256:…`, in parts; "" where one is not given."""

    repository: str
    tag: str
    digest: str

    @property
    def product(self) -> str:
        """Without the registry and its folders: a mirror holds the same."""
        return self.repository.rpartition("/")[2]

    @property
    def version(self) -> str:
        """Of what is in it, as its tag says: `0.10.1` of `v0.10.1-cu128`."""
        match = _TAG.match(self.tag)
        return match["version"] if match else ""

    @property
    def python(self) -> str:
        match = _PYTHON.search(self.tag)
        return match[1] if match else ""


def image_of(text: str) -> Image:
    name, _, digest = text.strip().partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # no tag, or the colon of a registry's port
        return Image(name, "", digest)
    return Image(path, tag, digest)


def one_version(scene: Scene) -> Iterator[Finding]:
    """The main containers of all roles run the same version."""
    roles = [(role, main, str(main.data["image"])) for role, main in scene.each() if main.data.get("image")]
    if len(roles) < 2:
        return
    first, main, told = roles[0]
    differ = False
    for role, container, text in roles[1:]:
        words = _difference(image_of(text), image_of(told))
        if words is None:
            continue
        differ = True
        grave, said = words
        yield scene.say(
            fail if grave else warn, f"{said} in {first.name}", (*container.path, "image"), role=role, container=container, observed=text, expected=told,
            cause="ray-version-mismatch" if scene.workload.over_ray else "version-mismatch",
            remedy=f"the same image in {first.name} and {role.name}, by one tag that names its version, or by one digest",
        )  # fmt: skip
    if not differ:
        yield scene.say(ok, "all roles run images of one version", (*main.path, "image"))


def _difference(here: Image, there: Image) -> tuple[bool, str] | None:
    """Whether two images are of different versions for sure, and the sentence; None: as far as their names say they are of one."""
    if here == there:
        return None
    same = here.product == there.product
    if here.version and there.version:
        if here.version != there.version:
            return same, f"{here.product} is {here.version} here and {_named(there, same)}{there.version}"
        if here.python and there.python and here.python != there.python:
            return True, f"Python is {here.python} here and {there.python}"
        return None
    if same and here.digest and there.digest:
        return (
            (False, f"the digest of {here.product} is another one here than") if here.digest != there.digest else None
        )
    if same:
        return False, f"{here.product} is {_told(here)} here and {_told(there)}"
    return False, f"the image is {here.product} here and {there.product}, whose versions are not told,"


def _named(image: Image, same: bool) -> str:
    return "" if same else image.product + " "


def _told(image: Image) -> str:
    return image.tag or image.digest[:19] or "of no tag"
