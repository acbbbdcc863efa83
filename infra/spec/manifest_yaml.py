"""YAML that programs of Kubernetes write: charts' CRDs and repositories' indexes, megabytes each.

PyYAML reads them with libyaml, twelve times as fast as the parser of `infra.spec.yaml_text`, which is for what people write. It also writes
what Kubernetes reads, by YAML 1.1: it puts `no` and `on` in quotes, which Go would take for booleans.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the one in C where there is one
    """Takes `=` for text, for which YAML 1.1 has a type of its own."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.constructor.SafeConstructor.construct_yaml_str)


def read_manifests(text: str | bytes) -> Iterator[dict[str, Any]]:
    """Every document that is a mapping.

    Raises:
        yaml.YAMLError: not YAML.
    """
    return (one for one in yaml.load_all(text, Loader=_Loader) if isinstance(one, dict))
