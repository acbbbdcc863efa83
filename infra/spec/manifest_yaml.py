"""YAML for Kubernetes, Helm, Prometheus and Ray: CRDs and indexes, megabytes each, to read, and whatever we write for these programs.

PyYAML with libyaml parses it twelve times as fast as `infra.spec.yaml_text`, the parser for human-written files.

What is written is quoted wherever YAML 1.1 or 1.2 could read a text as something else. PyYAML quotes what PyYAML would misread, but Go's
parsers (sigs.k8s.io/yaml v1.6.0 of kubectl, the API server and Helm) read `y` as true, and `1e3` and `08` as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

_ELSEWHERE: Final = re.compile(
    r"""
    y|yes|n|no|on|off|true|false|null|~|=|<<
    | [-+]?\.(?:inf|nan)
    | [-+]?0[box]?[0-9a-f_]+
    | [-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:e[-+]?[0-9]+)?
    | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[t ].*)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Text that a parser may take for a boolean, null, a merge, a number of any base, also 60, or a date (YAML 1.1, types; 1.2.2, 10.3)."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # in C if available
    """Loads `=` as text; YAML 1.1 has a separate type for it."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.constructor.SafeConstructor.construct_yaml_str)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as a block, and shared values in full instead of as YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # the base class's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _ELSEWHERE.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def read_manifests(text: str | bytes) -> Iterator[dict[str, Any]]:
    """Every document of the text that is a mapping.

    Raises:
        yaml.YAMLError: not YAML.
    """
    return (one for one in yaml.load_all(text, Loader=_Loader) if isinstance(one, dict))


def write_manifests(documents: Iterable[object], *, width: int = 120) -> str:
    """The documents, each under a line `---`; keys keep their order.

    Args:
        documents: of plain data.
        width: columns after which long text is folded.
    """
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=width, explicit_start=True, allow_unicode=True
    )


def write_document(document: object, *, width: int = 120) -> str:
    """One document; see `write_manifests`."""
    return write_manifests([document], width=width).removeprefix("---\n")
