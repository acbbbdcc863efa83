"""A sandbox's own objects, and the environment's as its real nodes need them."""

from __future__ import annotations

from collections.abc import Iterator

from infra.lifecycle.sandbox.recorded import Recorded
from infra.lifecycle.sandbox.services.facts import Services
from infra.lifecycle.sandbox.services.pod_identity import pod_identity
from infra.lifecycle.sandbox.services.prometheus import prometheus_service
from infra.lifecycle.sandbox.services.shared_files import shared_volume
from infra.spec.manifest import Manifest
from infra.spec.settings.stack import StackSettings


def early_objects(settings: StackSettings, services: Services) -> Iterator[Manifest]:
    """What has to be there before the environment's pods."""
    yield from pod_identity(settings, services)


def late_objects(services: Services) -> Iterator[Manifest]:
    """What is in the environment's namespaces."""
    yield from prometheus_service(services)


def adapted(manifest: Manifest, stack: Recorded, services: Services) -> Manifest:
    """An object of the environment, with a folder in place of a shared file system."""
    if manifest["kind"] != "PersistentVolume":
        return manifest
    return shared_volume(manifest, stack.access_points, services)
