"""What runs is what was chosen: pinned versions, immutable tags, digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind


@resource_rule(tokens.REPOSITORY, remedy="set image_tag_mutability=IMMUTABLE")
def image_tags_are_immutable(repository: Subject) -> Iterator[str]:
    """A tag names one image for ever; what is tested under it is what runs."""
    if not repository.says("imageTagMutability", "IMMUTABLE"):
        yield f"imageTagMutability is {repository.get('imageTagMutability')}"


@resource_rule(tokens.REPOSITORY, remedy="set image_scanning_configuration scan_on_push=True")
def images_are_scanned(repository: Subject) -> Iterator[str]:
    """Every image is scanned when it is pushed."""
    if not repository.says("imageScanningConfiguration.scanOnPush", True):
        yield "scanOnPush is not set"


@resource_rule(tokens.CLUSTER, remedy="take version from the release manifest")
def the_kubernetes_version_is_pinned(cluster: Subject) -> Iterator[str]:
    """The control plane's minor stands in the program; without it EKS takes its newest of the day."""
    if not cluster.has("version"):
        yield "version is not set"


@resource_rule(tokens.NODE_GROUP, remedy="run `make release-lock` and set release_version from the release manifest")
def node_images_are_pinned(group: Subject) -> Iterator[str]:
    """In prod a node group names its AMI release: driver and kernel change when the release does, not when a node starts."""
    if group.kind is EnvironmentKind.PROD and not group.has("releaseVersion"):
        yield "releaseVersion is not set, in prod"


@resource_rule(tokens.ADDON, remedy="run `make release-lock` and set addon_version from the release manifest")
def addons_are_pinned(addon: Subject) -> Iterator[str]:
    """In prod an add-on names its version."""
    if addon.kind is EnvironmentKind.PROD and not addon.has("addonVersion"):
        yield "addonVersion is not set, in prod"


@resource_rule(tokens.HELM_RELEASE, remedy="take version from the release manifest")
def charts_are_pinned(release: Subject) -> Iterator[str]:
    """A Helm release names its chart's version; without it Helm takes the repository's newest of the day."""
    if not release.has("version"):
        yield "version is not set"


@stack_rule(remedy="run `make release-lock`, and name images by Image.reference()")
def images_are_named_by_digest(graph: Graph) -> Iterator[Breach]:
    """In prod every container names its image by digest: a tag can be moved by whoever may push."""
    if graph.kind is not EnvironmentKind.PROD:
        return
    for subject in graph.subjects:
        if subject.type.startswith("kubernetes:"):
            for image in sorted(set(_images(subject.properties))):
                if "@sha256:" not in image:
                    yield Breach(subject, f"runs {image}")


def _images(value: object) -> Iterator[str]:
    """Images of every container in a Kubernetes object, however deep, e.g. in a custom resource's pod templates."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            if key in {"containers", "initContainers", "ephemeralContainers"} and member is not UNKNOWN:
                yield from (one["image"] for one in member if isinstance(one.get("image"), str))
            else:
                yield from _images(member)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for member in value:
            yield from _images(member)
