"""The contents of a sandbox: the nodes of an environment and the platform's objects."""

from __future__ import annotations

from collections.abc import Callable, Collection

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox.nodes import fake_nodes
from infra.lifecycle.sandbox.recorded import Recorded
from infra.lifecycle.sandbox.services.facts import Services
from infra.lifecycle.sandbox.services.objects import adapted, early_objects, late_objects
from infra.spec.catalog import load_catalog
from infra.spec.release import load_release
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.phases import platform_objects


def fill(
    api: KubernetesApi,
    settings: StackSettings,
    stack: Recorded,
    *,
    say: Callable[[str], None],
    real: Collection[str] = (),
    services: Services | None = None,
) -> None:
    """Create the fake nodes and the objects of an environment in a cluster.

    Args:
        api: its API server, with administrator rights; objects of kinds that it does not serve are left out.
        settings: the environment.
        stack: recorded outputs of the AWS half.
        say: prints a line of progress.
        real: names of the environment's nodes that are there already, because they are real.
        services: services of the real nodes' pods; None: the objects stay as the stack makes them.

    Raises:
        ApiError: the API server refuses an object.
    """
    nodes = fake_nodes(settings, catalog=load_catalog(), real=real)
    for node in nodes:
        api.create(node)
    say(f"{len(nodes)} {'fake ' if real else ''}nodes{f', and {len(real)} real: ' if real else ''}{', '.join(real)}")
    apply_objects(api, settings, stack, say=say, services=services)


def apply_objects(
    api: KubernetesApi,
    settings: StackSettings,
    stack: Recorded,
    *,
    say: Callable[[str], None],
    services: Services | None = None,
) -> None:
    """Create the objects of an environment, or bring them up to date; see `fill`."""
    release = load_release().with_digests(stack.outputs.digests)
    for manifest in early_objects(settings, services) if services else ():
        api.apply(manifest)
    for phase, manifests in platform_objects(settings, release, stack.facts).items():
        known = [manifest for manifest in manifests if api.serves(manifest["apiVersion"], manifest["kind"])]
        for manifest in known:
            api.apply(adapted(manifest, stack, services) if services else manifest)
        missing = sorted({manifest["kind"] for manifest in manifests} - {manifest["kind"] for manifest in known})
        say(f"{phase}: {len(known)} objects" + (f"; without {', '.join(missing)}" if missing else ""))
    for manifest in late_objects(services) if services else ():
        api.apply(manifest)
