"""The size of an image by layer, as a registry stores it: compressed, which is what a node downloads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.table import Table

from infra.lifecycle.image.distribution import Manifest, RemoteRepository

_INSTRUCTION_CHARACTERS = 80


class Layer(NamedTuple):
    """A layer: digest, compressed size in bytes, and the instruction that made it; empty if the image does not say."""

    digest: str
    size: int
    instruction: str


def size_text(size: int) -> str:
    """A number of bytes in decimal units, e.g. 1.2 GB."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def read_layers(repository: RemoteRepository, image: Manifest) -> list[Layer]:
    """The layers of an image, the base's first; those of an index's images follow each other.

    Raises:
        PlatformError: the registry failed.
    """
    children = [repository.manifest(child.digest) for child in image.children]
    found = [layer for child in children if child is not None for layer in read_layers(repository, child)]
    if not image.layers:
        return found
    with repository.open_blob(image.blobs[0].digest) as config:
        instructions = list(_instructions(json.loads(b"".join(config))))
    if len(instructions) != len(image.layers):
        instructions = [""] * len(image.layers)
    return [Layer(*layer, instruction) for layer, instruction in zip(image.layers, instructions, strict=True)]


def _instructions(config: Mapping[str, Any]) -> Iterator[str]:
    """The instruction of each layer, from the history (OCI image specification, "Image Configuration")."""
    for step in config.get("history", ()):
        if not step.get("empty_layer"):
            words = re.sub(r"^(?:/bin/sh -c (?:#\(nop\) )?|RUN /bin/sh -c )", "", step.get("created_by", ""))
            yield " ".join(words.split())[:_INSTRUCTION_CHARACTERS]


def layer_table(title: str, layers: list[Layer]) -> Table:
    """A table of layers with their total."""
    table = Table(title=f"{title}: {size_text(sum(layer.size for layer in layers))} in {len(layers)} layers")
    table.add_column("size", justify="right")
    table.add_column("layer")
    table.add_column("instruction", no_wrap=True)
    for layer in layers:
        table.add_row(size_text(layer.size), layer.digest[:19], layer.instruction)
    return table
