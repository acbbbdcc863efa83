"""Manifests as Pulumi resources, with placeholders for outputs that are unknown until `up`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pulumi

from infra.spec.manifest import Manifest

_PLACEHOLDER = re.compile(r"<<(?P<name>[a-z0-9_-]+)>>")


class DeferredOutputs:
    """Outputs by name, and the placeholders that represent them in plain data.

    Builders take and return plain data. Calling them inside `apply` would register resources there, which a preview of
    a new stack does not show; so they take placeholders, which `resolve` replaces by outputs.

    Args:
        outputs: outputs by name; names consist of lower-case letters, digits, hyphens and underscores.
    """

    def __init__(self, outputs: Mapping[str, pulumi.Output[str]]) -> None:
        self._outputs = outputs

    def placeholder(self, name: str) -> str:
        """Text that `resolve` replaces by the output.

        Raises:
            KeyError: no output has this name.
        """
        self._outputs[name]
        return f"<<{name}>>"

    def resolve(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The properties with every placeholder, at any depth, replaced by its output."""
        return {key: self._resolve(value) for key, value in properties.items()}

    def _resolve(self, value: object) -> object:
        if isinstance(value, Mapping):
            return self.resolve(value)
        if isinstance(value, list | tuple):
            return [self._resolve(member) for member in value]
        if isinstance(value, str) and _PLACEHOLDER.search(value):
            # Splitting by a pattern with one group puts the names at odd indices.
            parts = enumerate(_PLACEHOLDER.split(value))
            return pulumi.Output.concat(*(self._outputs[part] if index % 2 else part for index, part in parts))
        return value


class KubernetesObject(pulumi.CustomResource):
    """One object, with the type token of the provider's class for its kind.

    The SDK's classes take snake_case properties, and custom resources have no class. This one takes the manifest as the
    API server does, so that the stack, the sandbox and the tests share it.

    Args:
        manifest: the object.
        outputs: outputs for its placeholders.
        opts: options of the resource.
    """

    def __init__(self, manifest: Manifest, outputs: DeferredOutputs, opts: pulumi.ResourceOptions) -> None:
        self.manifest = manifest
        super().__init__(type_token(manifest), logical_name(manifest), outputs.resolve(manifest), opts)


class ObjectGroup(pulumi.ComponentResource):
    """Objects that are applied together; each run of objects of one kind depends on the run before it.

    Objects in a namespace of the group are deleted with it: deleted one by one, a claim would wait for the pods that use it,
    which are deleted with the namespace only.

    An object depends on those that are kept while it exists. An update that deletes both orders them by nothing else: Pulumi reads only
    the dependencies between what it deletes (pulumi, pkg/resource/deploy/step_generator.go, `ScheduleDeletes`). A claim is replaced with
    its volume, e.g. of a new file system: Kubernetes keeps the old volume as long as there is the claim.

    Args:
        name: logical name of the component.
        manifests: the objects.
        outputs: outputs for their placeholders.
        opts: options of the component.
        earlier: the objects of the groups before.
    """

    def __init__(
        self,
        name: str,
        manifests: Iterable[Manifest],
        outputs: DeferredOutputs,
        opts: pulumi.ResourceOptions,
        *,
        earlier: Sequence[KubernetesObject] = (),
    ) -> None:
        super().__init__("rtp:kubernetes:Objects", name, None, opts)
        self.objects: list[KubernetesObject] = []
        previous: list[KubernetesObject] = []
        namespaces: dict[str, KubernetesObject] = {}
        for kind, run in groupby(manifests, key=itemgetter("kind")):
            shared = pulumi.ResourceOptions(parent=self, depends_on=previous)
            previous = []
            for manifest in run:
                metadata = manifest["metadata"]
                kept: list[pulumi.Resource] = [
                    one for one in (*earlier, *self.objects) if _keeps(manifest, one.manifest)
                ]
                own = pulumi.ResourceOptions(
                    deleted_with=namespaces.get(metadata.get("namespace")),
                    depends_on=kept,
                    replace_with=kept if kind == "PersistentVolumeClaim" else None,
                )
                child = KubernetesObject(manifest, outputs, pulumi.ResourceOptions.merge(shared, own))
                previous.append(child)
                self.objects.append(child)
                if kind == "Namespace":
                    namespaces[metadata["name"]] = child
        self.register_outputs({})


def _keeps(user: Manifest, used: Manifest) -> bool:
    """Whether Kubernetes or Kueue keeps an object that is being deleted while another one, or what is in it, uses it."""
    name, spec = used["metadata"]["name"], used.get("spec", {})
    match user["kind"], used["kind"]:
        case "Namespace", "PersistentVolume":
            return bool(spec["claimRef"]["namespace"] == user["metadata"]["name"])
        case "Namespace", "ClusterQueue":  # a team's
            return bool(name == user["metadata"]["name"])
        case "PersistentVolumeClaim", "PersistentVolume":
            return bool(user["spec"]["volumeName"] == name)
        case "ClusterQueue", "ResourceFlavor":
            groups = user["spec"]["resourceGroups"]
            return any(flavor["name"] == name for group in groups for flavor in group["flavors"])
        case "ResourceFlavor", "Topology":
            return bool(user["spec"].get("topologyName") == name)
    return False


def type_token(manifest: Manifest) -> str:
    """The provider's type token of an object, e.g. kubernetes:apps/v1:Deployment; the core group is called `core`."""
    group_version: str = manifest["apiVersion"]
    module = group_version if "/" in group_version else f"core/{group_version}"
    return f"kubernetes:{module}:{manifest['kind']}"


def logical_name(manifest: Manifest) -> str:
    """Kind, namespace and name in lower case, which identify an object in the cluster."""
    metadata = manifest["metadata"]
    parts = (manifest["kind"], metadata.get("namespace"), metadata["name"])
    return "-".join(part for part in parts if part).lower()
