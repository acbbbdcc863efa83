"""Read and write human-written YAML: settings, training configurations, the release and the catalogue.

Scalars follow the core schema of YAML 1.2.2, section 10.3.2: `3e-3` is a number, `no`, `on` and `2026-11-21` are text, `010` is ten. So
`learning_rate: 3e-3` means what it says, and values round-trip. The parser is ruamel.yaml's pure Python one: its faster C parser implements
YAML 1.1, and rejects `{uri: http://host}`. `infra.spec.manifest_yaml` handles Kubernetes manifests, which follow YAML 1.1.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.dumper import SafeDumper
from ruamel.yaml.emitter import RoundTripEmitter
from ruamel.yaml.error import CommentMark, MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.resolver import BaseResolver
from ruamel.yaml.scalarstring import SingleQuotedScalarString

from infra.spec.errors import SettingsError

KeyPath = tuple[str, ...]
"""The keys and list positions that lead to a value, outermost first."""

Scalar = str | float | date | None

_TEXT: Final = "tag:yaml.org,2002:str"
_CORE_SCHEMA: Final = [
    # kind, pattern, possible first characters
    ("null", r"(?:~|null|Null|NULL|)$", [*"~nN", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", [*"-+0123456789"]),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", [*"-+.0123456789"]),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", [*"-+."]),
]
_LINE_LENGTH: Final = 120
_KEY_INDICATORS: Final = (":", "?")


class _CoreSchema(BaseResolver):
    """Resolves plain scalars by the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base class has it

    def __init__(self, version: object = None, loader: object = None, loadumper: object = None) -> None:
        del version  # one schema, regardless of a %YAML directive
        super().__init__(loadumper or loader)

    @property
    def processing_version(self) -> tuple[int, int]:
        """The YAML version."""
        return 1, 2


for _kind, _pattern, _first in _CORE_SCHEMA:
    _CoreSchema.add_implicit_resolver_base(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), _first)


class _Dumper(_CoreSchema, SafeDumper):
    """Safe dumper that quotes text which the loader would not read as text."""

    __init__ = SafeDumper.__init__

    def ignore_aliases(self, data: object) -> bool:
        """Write repeated values in full, without anchors and aliases."""
        del data
        return True


class _Representer(RoundTripRepresenter):
    """Round-trip representer that writes None as `null`, as in our files."""


class _Emitter(RoundTripEmitter):
    """Round-trip emitter that writes a comment one space after its value, even if the value's length changes."""

    def write_comment(self, comment: Any, pre: bool = False) -> None:  # noqa: ANN401, FBT001 - the base class's
        """Write a comment token; ruamel would keep the original column."""
        if self.column and not pre:
            comment.start_mark = CommentMark(0)
        super().write_comment(comment, pre=pre)


def _text(dumper: _Dumper, text: str) -> object:
    # Escapes keep multi-line text on one line. Without quotes, ruamel would write `[?a]`, which it reads as a key.
    style = "'" if text.startswith(_KEY_INDICATORS) else None
    return dumper.represent_scalar(_TEXT, text, style=style if text.isprintable() else '"')


def _null(representer: _Representer, _: None) -> object:
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


def _date(representer: _Representer, day: date) -> object:
    return representer.represent_scalar(_TEXT, day.isoformat())


_Dumper.add_representer(str, _text)
_Representer.add_representer(type(None), _null)
_Representer.add_representer(date, _date)


class Document(NamedTuple):
    """A parsed document.

    Attributes:
        value: its content, in plain types.
        lines: line (1-based) of every key and list item.
    """

    value: Any
    lines: Mapping[KeyPath, int]

    def places(self, file: str = "") -> dict[KeyPath, str]:
        """Place of every key for messages: `my.yaml:12`, or `line 12` if the message names the file elsewhere."""
        return {path: f"{file}:{line}" if file else f"line {line}" for path, line in self.lines.items()}


def parse(text: str, *, source: str) -> Document:
    """Parse one YAML document.

    Args:
        text: the document; an empty one is null.
        source: name of the document in messages, e.g. the file name.

    Raises:
        SettingsError: invalid YAML, a duplicate key, a key that is not text, or an unknown tag; with line and column.
    """
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Resolver = _CoreSchema
        node = yaml.compose(text)
        if node is None:
            return Document(None, {})
        lines = dict(_lines(node, (), source))
        return Document(yaml.constructor.construct_document(node), lines)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        raise SettingsError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except (YAMLError, RecursionError, ValueError) as error:
        raise SettingsError(f"{source}: not valid YAML: {error}") from error


def read_file(path: Path) -> Document:
    """Read a YAML file; raises like `parse`, and SettingsError if the file does not exist or cannot be read."""
    if not path.is_file():
        raise SettingsError(f"{path}: no such file")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    return parse(text, source=str(path))


def inline(value: object) -> str:
    """A plain value as one line of YAML, which `parse` reads back as an equal value."""
    stream = io.StringIO()
    dumper = _Dumper(stream, default_flow_style=True, allow_unicode=True, width=math.inf)
    dumper.sort_base_mapping_type_on_output = False
    dumper.open()
    dumper.represent(value)
    dumper.close()
    return stream.getvalue().removesuffix("\n").removesuffix("\n...")


def _quoted_if_needed(value: Scalar) -> Scalar:
    """The value, in quotes if it is text that ruamel would write plain into a flow mapping but not read back from there."""
    return SingleQuotedScalarString(value) if isinstance(value, str) and value.startswith(_KEY_INDICATORS) else value


def edited(text: str, changes: Mapping[KeyPath, Scalar]) -> str:
    """The YAML text with some scalars changed; comments stay.

    In a file that this function has formatted, nothing else changes. A new key of a block mapping is inserted before
    the last key, because ruamel attaches the following comments to the last key.

    Args:
        text: a document whose top level is a mapping.
        changes: new value by key path; every mapping on the path must exist.

    Raises:
        KeyError: a mapping on the path does not exist.
    """
    yaml = YAML()
    yaml.Resolver, yaml.Representer, yaml.Emitter = _CoreSchema, _Representer, _Emitter
    yaml.preserve_quotes, yaml.width = True, _LINE_LENGTH
    document = yaml.load(text)
    for (*path, key), value in changes.items():
        mapping = document
        for depth, name in enumerate(path):
            mapping = mapping.get(name)
            if not isinstance(mapping, CommentedMap):
                raise KeyError(".".join(path[: depth + 1]))
        written = _quoted_if_needed(value)
        if key in mapping or mapping.fa.flow_style():
            mapping[key] = written
        else:
            mapping.insert(max(0, len(mapping) - 1), key, written)
    stream = io.StringIO()
    yaml.dump(document, stream)
    # ruamel leaves a trailing space where it wraps a list.
    return re.sub(r" +$", "", stream.getvalue(), flags=re.MULTILINE)


def _lines(node: Node, path: KeyPath, source: str) -> Iterator[tuple[KeyPath, int]]:
    """The line of every key and item below a node; refuses duplicate keys."""
    if isinstance(node, SequenceNode):
        for position, item in enumerate(node.value):
            yield (*path, str(position)), item.start_mark.line + 1
            yield from _lines(item, (*path, str(position)), source)
    elif isinstance(node, MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line, column = key.start_mark.line + 1, key.start_mark.column + 1
            if not isinstance(key, ScalarNode) or key.tag != _TEXT:
                raise SettingsError(f"{source}:{line}:{column}: a key must be text", remedy="put the key in quotes")
            if key.value in seen:
                raise SettingsError(
                    f"{source}:{line}:{column}: duplicate key `{'.'.join((*path, key.value))}`, "
                    f"first on line {seen[key.value]}",
                    remedy="keep one of the two lines",
                )
            seen[key.value] = line
            yield (*path, key.value), line
            yield from _lines(value, (*path, key.value), source)
