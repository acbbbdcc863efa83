"""Supply chain: pinned versions, immutable tags, digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind


@resource_rule(tokens.REPOSITORY, remedy="set image_tag_mutability=IMMUTABLE")
def image_tags_are_immutable(repository: Resource) -> Iterator[str]:
    """Image tags are immutable, so that the tested image is the one that runs."""
    if not repository.is_one_of("imageTagMutability", "IMMUTABLE"):
        yield f"imageTagMutability is {repository.get('imageTagMutability')}"


@resource_rule(tokens.REPOSITORY, remedy="set image_scanning_configuration scan_on_push=True")
def images_are_scanned(repository: Resource) -> Iterator[str]:
    """ECR scans every image on push."""
    if not repository.is_one_of("imageScanningConfiguration.scanOnPush", True):
        yield "scanOnPush is not set"


@resource_rule(tokens.CLUSTER, remedy="take version from the release manifest")
def kubernetes_version_is_pinned(cluster: Resource) -> Iterator[str]:
    """The Kubernetes minor version is set; otherwise EKS installs its latest."""
    if not cluster.is_set("version"):
        yield "version is not set"


@resource_rule(tokens.NODE_GROUP, remedy="run `make release-lock` and set release_version from the release manifest")
def node_images_are_pinned(group: Resource) -> Iterator[str]:
    """In prod, node groups pin their AMI release, so that driver and kernel change only with the release."""
    if group.kind is EnvironmentKind.PROD and not group.is_set("releaseVersion"):
        yield "releaseVersion is not set, in prod"


@resource_rule(tokens.ADDON, remedy="run `make release-lock` and set addon_version from the release manifest")
def addons_are_pinned(addon: Resource) -> Iterator[str]:
    """In prod, add-ons pin their version."""
    if addon.kind is EnvironmentKind.PROD and not addon.is_set("addonVersion"):
        yield "addonVersion is not set, in prod"


@resource_rule(tokens.HELM_RELEASE, remedy="take version from the release manifest")
def charts_are_pinned(release: Resource) -> Iterator[str]:
    """Helm releases pin the chart version; otherwise Helm installs the latest."""
    if not release.is_set("version"):
        yield "version is not set"


@stack_rule(remedy="run `make release-lock`, and build references with Image.reference()")
def images_are_pinned_by_digest(graph: Graph) -> Iterator[Violation]:
    """In prod, containers refer to images by digest, because a tag can be moved."""
    if graph.kind is not EnvironmentKind.PROD:
        return
    for resource in graph.resources:
        if resource.type.startswith("kubernetes:"):
            for image in sorted(set(_images(resource.properties))):
                if "@sha256:" not in image:
                    yield Violation(resource, f"runs {image}")


def _images(value: object) -> Iterator[str]:
    """Images of every container in a Kubernetes object, at any depth, e.g. in a custom resource's pod templates."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            if key in {"containers", "initContainers", "ephemeralContainers"} and member is not UNKNOWN:
                yield from (one["image"] for one in member if isinstance(one.get("image"), str))
            else:
                yield from _images(member)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for member in value:
            yield from _images(member)
