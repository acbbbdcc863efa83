"""Manifests as Pulumi resources, and values in them that exist only once the AWS stack is up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import pulumi

from infra.spec.manifest import Manifest

_MARKER = re.compile(r"<<(?P<name>[a-z0-9_-]+)>>")


class LateValues:
    """Outputs by name, and the markers that stand for them in plain data.

    The builders take text and give plain data; a resource that is registered inside `apply` would be absent from the
    preview of a new stack. So they are given markers, and the markers are replaced afterwards.

    Args:
        outputs: what the markers stand for, by name in lower case; hyphens are allowed.
    """

    def __init__(self, outputs: Mapping[str, pulumi.Output[str]]) -> None:
        self._outputs = outputs

    def marker(self, name: str) -> str:
        """Text that stands for an output.

        Raises:
            KeyError: there is no output of that name.
        """
        self._outputs[name]
        return f"<<{name}>>"

    def filled(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The properties with every marker in them, however deep, replaced by its output."""
        return {key: self._filled(value) for key, value in properties.items()}

    def _filled(self, value: object) -> object:
        if isinstance(value, Mapping):
            return self.filled(value)
        if isinstance(value, list | tuple):
            return [self._filled(member) for member in value]
        if isinstance(value, str) and _MARKER.search(value):
            # Splitting by a pattern with one group leaves names at the odd places.
            parts = enumerate(_MARKER.split(value))
            return pulumi.Output.concat(*(self._outputs[part] if index % 2 else part for index, part in parts))
        return value


class KubernetesObject(pulumi.CustomResource):
    """One object, of the type that the provider's own class for the kind has.

    The SDK has a class per kind, none for custom resources, and each takes snake_case that it translates back; a manifest
    is what the API server takes already, and the same one goes to a sandbox or a test.

    Args:
        manifest: the object.
        late: values that its markers stand for.
        opts: options of the resource.
    """

    def __init__(self, manifest: Manifest, late: LateValues, opts: pulumi.ResourceOptions) -> None:
        super().__init__(type_token(manifest), logical_name(manifest), late.filled(manifest), opts)


class ObjectGroup(pulumi.ComponentResource):
    """Objects that are made together, in their order as far as it matters: each run of one kind waits for the one before.

    Args:
        name: what they are for.
        manifests: the objects.
        late: values that their markers stand for.
        opts: options of the component.
        is_kept: the objects stay in the cluster when the stack no longer has them.
    """

    def __init__(
        self,
        name: str,
        manifests: Iterable[Manifest],
        late: LateValues,
        opts: pulumi.ResourceOptions,
        *,
        is_kept: bool = False,
    ) -> None:
        super().__init__("rtp:kubernetes:Objects", name, None, opts)
        earlier: list[KubernetesObject] = []
        for _, run in groupby(manifests, key=itemgetter("kind")):
            below = pulumi.ResourceOptions(parent=self, retain_on_delete=is_kept, depends_on=earlier)
            earlier = [KubernetesObject(manifest, late, below) for manifest in run]
        self.register_outputs({})


def type_token(manifest: Manifest) -> str:
    """The provider's type of an object, e.g. kubernetes:apps/v1:Deployment; the core group has no name of its own."""
    group_version: str = manifest["apiVersion"]
    module = group_version if "/" in group_version else f"core/{group_version}"
    return f"kubernetes:{module}:{manifest['kind']}"


def logical_name(manifest: Manifest) -> str:
    """Kind, namespace and name in lower case: an object moves to another URN when it is another object."""
    metadata = manifest["metadata"]
    parts = (manifest["kind"], metadata.get("namespace"), metadata["name"])
    return "-".join(part for part in parts if part).lower()
