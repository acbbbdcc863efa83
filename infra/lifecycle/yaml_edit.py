"""Change single values of a YAML file and leave every other character, comments too, as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

import yaml

KeyPath = tuple[str, ...]
Scalar = str | float | date | None


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def edited(text: str, changes: Mapping[KeyPath, Scalar]) -> str:
    """The YAML text with scalars set; a key that its mapping lacks is added as its last one.

    Args:
        text: a document whose top level is a mapping.
        changes: new value by the path of mapping keys; every mapping on the way must exist.

    Raises:
        KeyError: a mapping on the way does not exist.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    additions: dict[int, list[_Edit]] = {}
    edits: list[_Edit] = []
    for path, value in changes.items():
        mapping = _mapping_at(root, path[:-1])
        present = _members(mapping).get(path[-1])
        if present is not None:
            edits.append(_Edit(present.start_mark.index, present.end_mark.index, _written(value)))
        else:
            addition = _addition(text, mapping, f"{path[-1]}: {_written(value)}")
            additions.setdefault(addition.start, []).append(addition)
    edits += [_Edit(start, start, "".join(one.text for one in several)) for start, several in additions.items()]
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _members(mapping: yaml.MappingNode) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in mapping.value}


def _mapping_at(node: yaml.Node | None, path: KeyPath) -> yaml.MappingNode:
    for depth, key in enumerate(path):
        node = _members(node).get(key) if isinstance(node, yaml.MappingNode) else None
        if node is None:
            raise KeyError(".".join(path[: depth + 1]))
    if not isinstance(node, yaml.MappingNode):
        raise KeyError(".".join(path))
    return node


def _addition(text: str, mapping: yaml.MappingNode, member: str) -> _Edit:
    last: yaml.Node = mapping
    while last is mapping or (isinstance(last, yaml.MappingNode) and not last.flow_style):
        last = last.value[-1][1]
    end = last.end_mark.index
    if mapping.flow_style:
        return _Edit(end, end, f", {member}")
    end = text.find("\n", end)
    return _Edit(end, end, f"\n{' ' * mapping.value[0][0].start_mark.column}{member}")


def _written(value: Scalar) -> str:
    """The value in YAML, quoted where a flow mapping needs it."""
    return yaml.safe_dump([value], default_flow_style=True, width=float("inf"), allow_unicode=True).strip()[1:-1]
