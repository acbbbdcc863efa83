"""A running sandbox whose nodes pull images: found by the outputs that its user exported, and brought up to date."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from infra.kube.connection import connect_with
from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.lifecycle.image.recipes import ImageName
from infra.lifecycle.sandbox.contents import apply_objects
from infra.lifecycle.sandbox.images.publish import publish
from infra.lifecycle.sandbox.images.registry import images_folder, storage_folder
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.sandbox.recorded import recorded
from infra.lifecycle.sandbox.services.authority import authority_certificate
from infra.lifecycle.sandbox.services.facts import Services
from infra.lifecycle.sandbox.services.provision import provision
from infra.lifecycle.show import print_line
from infra.spec.outputs import StackOutputs
from infra.spec.registry_names import PlainImage
from infra.spec.settings import load_environment
from infra.spec.stack_outputs import OUTPUTS_VARIABLE, given_outputs


class RunningSandbox(NamedTuple):
    """A sandbox with a registry.

    Attributes:
        file: its outputs, in the sandbox's folder.
        outputs: what the file says.
        registry: its registry.
    """

    file: Path
    outputs: StackOutputs
    registry: PlainRegistry


def running_sandbox(env: str) -> RunningSandbox | None:
    """The sandbox whose outputs $RTP_STACK_OUTPUTS names; None if it names none, or those of a stack.

    Raises:
        SettingsError: the file has no outputs, or those of another environment than `env`.
    """
    outputs = given_outputs(env, file=None, environment=os.environ)
    if outputs is None:
        return None
    image = PlainImage.parse(f"{outputs.registries['trainer']}:any")
    if image is None:
        return None
    registry = PlainRegistry(image.host, image.repository.rpartition("/")[0])
    return RunningSandbox(Path(os.environ[OUTPUTS_VARIABLE]), outputs, registry)


def push_to_sandbox(sandbox: RunningSandbox, names: Iterable[ImageName]) -> int:
    """Build images of this checkout, with what is not committed, and let the sandbox use them; returns the exit status.

    The release manifest stays as it is: it pins what environments run.
    """
    folder = sandbox.file.resolve().parent
    services = Services.read(folder)
    settings = load_environment(sandbox.outputs.environment)
    built = publish(
        sandbox.registry,
        logs=images_folder(folder),
        names=names,
        say=print_line,
        storage=storage_folder(os.environ),
        authority=authority_certificate(os.environ),
    )
    outputs = sandbox.outputs.model_copy(update={"digests": {**sandbox.outputs.digests, **built}})
    partial = sandbox.file.with_suffix(".partial")
    partial.write_text(outputs.model_dump_json(indent=2), encoding="utf-8")
    partial.replace(sandbox.file)
    stack = recorded(settings).with_images(outputs.registries, outputs.digests)
    if services:
        stack = provision(stack, services)
    apply_objects(connect_with(kubeconfig_in(folder)), settings, stack, say=print_line, services=services)
    return 0
