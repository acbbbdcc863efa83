"""Run a local Kubernetes with an environment's objects."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from infra.kube.api import KubernetesApi
from infra.kube.client import authority_of
from infra.kube.connection import connect_with
from infra.lifecycle.image import engines
from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.lifecycle.image.recipes import IMAGES
from infra.lifecycle.options import SandboxOptions
from infra.lifecycle.sandbox import detached
from infra.lifecycle.sandbox.contents import fill
from infra.lifecycle.sandbox.images.publish import publish
from infra.lifecycle.sandbox.images.registry import PORT, images_folder, storage_folder
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.sandbox.modules import KUBERNETES, OPERATORS, Module
from infra.lifecycle.sandbox.node.prerequisites import check as check_prerequisites
from infra.lifecycle.sandbox.node.request import requested
from infra.lifecycle.sandbox.programs import find_programs, find_registry
from infra.lifecycle.sandbox.recorded import Recorded, recorded
from infra.lifecycle.sandbox.services.authority import authority_certificate
from infra.lifecycle.sandbox.services.facts import Services
from infra.lifecycle.sandbox.services.provision import provision
from infra.lifecycle.show import print_line
from infra.spec.catalog import load_catalog
from infra.spec.command_line import NoOptions
from infra.spec.errors import SettingsError
from infra.spec.names import name_prefix
from infra.spec.outputs import StackOutputs
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, load_environment
from infra.spec.signals import ENDINGS, interrupting

FOLDER = Path(".local/sandbox")


def up(options: SandboxOptions) -> int:
    """Start a sandbox and create the environment's objects in it."""
    settings = load_environment(options.env)
    if options.crds is not None and not options.crds.is_dir():
        raise SettingsError(
            f"--crds {options.crds}: no such folder", remedy="omit it to use the CRDs of `make engines`"
        )
    nodes = requested(options.real, settings, catalog=load_catalog())
    find_programs(os.environ)  # refused here, with a status and a remedy, before a process starts
    folder, is_started = FOLDER.resolve(), False
    if nodes:
        check_prerequisites(folder, os.environ)
        find_registry(os.environ)
    with_images = bool(nodes) and options.images == "all"
    if with_images:
        engines.find()
    if nodes:
        names = ", ".join(node.name for node in nodes)
        print_line(f"sandbox: starting Kubernetes {KUBERNETES.version} with real nodes {names}")
    try:
        with interrupting(ENDINGS):
            running = detached.start(folder, crds=options.crds, nodes=nodes)
            is_started = True
            outputs = _fill(settings, folder, real=[node.name for node in nodes], with_images=with_images)
    except BaseException as error:
        if is_started:
            detached.stop(folder)
        if isinstance(error, KeyboardInterrupt):
            print_line("sandbox: interrupted, and stopped")
        raise
    for operator in OPERATORS:
        print_line(
            f"sandbox: {operator.title} {operator.version} {_state(operator, is_running=operator.name in running)}"
        )
    print_line(f"sandbox: {options.env} runs on Kubernetes {KUBERNETES.version}; next:")
    print_line(f"  export KUBECONFIG={kubeconfig_in(folder)} RTP_STACK_OUTPUTS={outputs}")
    print_line("  kubectl get nodes")
    print_line(f"  make train ENV={options.env} TEAM={settings.teams[0].name} DETACH=1")
    print_line("  make sandbox-down")
    return 0


def down(_options: NoOptions) -> int:
    """Stop the sandbox and delete its files."""
    print_line("sandbox: stopped" if detached.stop(FOLDER.resolve()) else "sandbox: not running")
    return 0


def _fill(settings: StackSettings, folder: Path, *, real: Sequence[str], with_images: bool) -> Path:
    """Create the environment's objects and write its outputs."""
    api = connect_with(kubeconfig_in(folder))
    stack = recorded(settings)
    if real:
        address = urlsplit(api.client.configuration.host).hostname
        registry = PlainRegistry(f"{address}:{PORT}", name_prefix(settings))
        stack = _with_images(stack, registry, folder, is_built=with_images)
    services = Services.read(folder)
    if services:
        stack = provision(stack, services)
        for line in services.missing:
            _say(f"WARNING: {line}")
    fill(api, settings, stack, say=_say, real=real, services=services)
    return _write_outputs(stack.outputs, api, folder)


def _with_images(stack: Recorded, registry: PlainRegistry, folder: Path, *, is_built: bool) -> Recorded:
    """The stack with its images in the sandbox's registry, where they are built and pushed if they have changed."""
    storage, images = storage_folder(os.environ), load_release().images
    digests = (
        publish(
            registry,
            logs=images_folder(folder),
            say=_say,
            storage=storage,
            authority=authority_certificate(os.environ),
        )
        if is_built
        else {}
    )
    return stack.with_images({name: registry.repository(images[name]) for name in IMAGES}, digests)


def _say(line: str) -> None:
    print_line(f"sandbox: {line}")


def _state(operator: Module, *, is_running: bool) -> str:
    if is_running:
        return "is running"
    return f"is missing: run `make engines`, or set {operator.variable} to its binary"


def _write_outputs(outputs: StackOutputs, api: KubernetesApi, folder: Path) -> Path:
    """Write the stack's outputs with the sandbox as the cluster, so that job submission works as on EKS."""
    authority = base64.b64encode(authority_of(api.client)).decode()
    cluster = outputs.cluster.model_copy(update={"endpoint": api.server, "certificate_authority": authority})
    path = folder / "outputs.json"
    path.write_text(outputs.model_copy(update={"cluster": cluster}).model_dump_json(indent=2), encoding="utf-8")
    return path
