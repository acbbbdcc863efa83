"""YAML as the settings use it: the core schema of YAML 1.2, no key twice, and where every key stands.

PyYAML follows YAML 1.1, in which `3e-3` is text, `no` is false and `010` is eight. Reader and writer here share the
rules of YAML 1.2.2, section 10.3.2, so that what a person means by `learning_rate: 3e-3` is what is read, and what is
written is read back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from training.errors import SettingsError

KeyPath = tuple[str, ...]
"""The keys that lead to a value, outermost first."""

_CORE_SCHEMA: Final = [
    # kind, what it looks like, first characters it can have
    ("null", r"(?:~|null|Null|NULL|)$", [*"~nN", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", [*"-+0123456789"]),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", [*"-+.0123456789"]),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", [*"-+."]),
]


class _Loader(yaml.SafeLoader):
    """Safe loader with the core schema's scalars."""


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes what the loader would not read as text."""


def _integer(_: _Loader, node: yaml.ScalarNode) -> int:
    return int(node.value, 0) if node.value[:2] in {"0o", "0x"} else int(node.value)


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    # Escapes keep a text with line breaks on one line.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Loader.yaml_implicit_resolvers = {}
_Dumper.yaml_implicit_resolvers = {}
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Dumper.add_representer(str, _text)
for _kind, _pattern, _first in _CORE_SCHEMA:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), _first)


def parse(text: str, *, source: str) -> tuple[Any, dict[KeyPath, int]]:
    """Read one YAML document.

    Args:
        text: the document; an empty one is null.
        source: what messages call it, e.g. the file's name.

    Returns:
        The value, and the line (1-based) of every key in it.

    Raises:
        SettingsError: not YAML, a key twice, a key that is not text, or a tag of other software; with line and column.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        lines = dict(_lines(node, (), source))
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        raise SettingsError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{source}: not valid YAML: {error}") from error


def inline(value: object) -> str:
    """A value of plain types as YAML on one line, which `parse` reads back equal."""
    text = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=True, width=math.inf
    )
    return str(text).removesuffix("\n").removesuffix("\n...")


def _lines(node: yaml.Node, path: KeyPath, source: str) -> Iterator[tuple[KeyPath, int]]:
    """The line of every key below a node. A key that stands twice is refused, of which PyYAML would take the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line, column = key.start_mark.line + 1, key.start_mark.column + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise SettingsError(f"{source}:{line}:{column}: a key must be text", remedy="put the key in quotes")
        if key.value in seen:
            raise SettingsError(
                f"{source}:{line}:{column}: key `{'.'.join((*path, key.value))}` stands a second time, "
                f"first in line {seen[key.value]}",
                remedy="keep one of the two lines",
            )
        seen[key.value] = line
        yield (*path, key.value), line
        yield from _lines(value, (*path, key.value), source)
