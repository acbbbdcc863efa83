"""Manifests as YAML for people to read and for `kubectl apply`."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from infra.spec.manifest import Manifest

_WIDTH = 120

_HEAD = """\
# Made by ray-train-platform; takes effect with
#   kubectl apply --server-side -f FILE
# Settings stand as they were given, under `data`. `make train` does the same and follows the job.
"""


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as a block, and shared values in full instead of as YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # the base class's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def to_yaml(manifests: Iterable[Manifest]) -> str:
    """One YAML document per object, under a comment that says how to apply them."""
    return _HEAD + yaml.dump_all(
        manifests, Dumper=_Dumper, sort_keys=False, width=_WIDTH, explicit_start=True, allow_unicode=True
    )
