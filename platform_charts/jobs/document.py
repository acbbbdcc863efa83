"""Manifests as YAML for people to read and for `kubectl apply`."""

from __future__ import annotations

from collections.abc import Iterable

from infra.spec.manifest import Manifest
from infra.spec.manifest_yaml import write_manifests

_HEAD = """\
# Made by ray-train-platform; takes effect with
#   kubectl apply --server-side -f FILE
# Settings stand as they were given, under `data`. `make train` does the same and follows the job.
"""


def to_yaml(manifests: Iterable[Manifest]) -> str:
    """One YAML document per object, under a comment that says how to apply them."""
    return _HEAD + write_manifests(manifests)
