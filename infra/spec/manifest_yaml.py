"""Machine-written Kubernetes YAML: CRDs of charts and indexes of chart repositories, megabytes each.

PyYAML with libyaml parses it twelve times as fast as `infra.spec.yaml_text`, the parser for human-written files. PyYAML also writes YAML
1.1 as Kubernetes reads it: it quotes `no` and `on`, which Go would parse as booleans.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # in C if available
    """Loads `=` as text; YAML 1.1 has a separate type for it."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.constructor.SafeConstructor.construct_yaml_str)


def read_manifests(text: str | bytes) -> Iterator[dict[str, Any]]:
    """Every document of the text that is a mapping.

    Raises:
        yaml.YAMLError: not YAML.
    """
    return (one for one in yaml.load_all(text, Loader=_Loader) if isinstance(one, dict))
