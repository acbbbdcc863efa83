"""Build our own images, and push them to a stack's registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import boto3

from infra.lifecycle.aws import Client
from infra.lifecycle.image import ecr, engines, plan, sbom
from infra.lifecycle.image.ecr import Repository
from infra.lifecycle.image.engines import ImageEngine
from infra.lifecycle.image.plan import Build
from infra.lifecycle.options import ImageOptions
from infra.lifecycle.show import print_line
from infra.spec import outputs as contract
from infra.spec.catalog import load_catalog
from infra.spec.errors import PlatformError, SettingsError
from infra.spec.release import RELEASE_FILE, load_release
from infra.spec.release_rules import ROOT
from infra.spec.stack_outputs import outputs_of_stack

SBOM_FOLDER = Path(".local/sbom")
"""Folder of SBOMs, relative to the repository."""


def image(options: ImageOptions) -> int:
    """Build one image or all; with `--push`, push them and write their digests into the release manifest."""
    names: tuple[plan.ImageName, ...] = (options.image,) if options.image else plan.IMAGES
    builds = [_plan(name, options) for name in names]
    registry = _registry(options.env) if options.push else None
    builder = engines.find()
    for build in builds:
        _write_sbom(build)
        if registry is None:
            reference = f"ray-train-platform/{build.image}:{build.tag}"
            engines.run(builder.build(build, reference))
            print_line(f"{build.image}: built by {builder.name} as {reference}")
        else:
            _release(build, registry.push(build, builder))
    return 0


def _plan(name: plan.ImageName, options: ImageOptions) -> Build:
    source = plan.read_source(ROOT, name)
    if options.push:
        plan.require_committed(source, name)
    torch = plan.torch_choice(options.variant) if name == "trainer" else None
    return plan.plan(name, load_release(), source, variant=options.variant, torch=torch)


def _write_sbom(build: Build) -> None:
    file = ROOT / SBOM_FOLDER / f"{build.image}-{build.tag}.cdx.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(sbom.document(build), encoding="utf-8")
    print_line(f"{build.image}: {len(sbom.packages(build))} packages, SBOM in {file.relative_to(ROOT)}")


def _release(build: Build, digest: str) -> None:
    if build.is_released:
        plan.write_digest(RELEASE_FILE, build.image, digest)
        print_line(f"{build.image}: {digest} written to {RELEASE_FILE.name}; commit it")
    else:
        print_line(f"{build.image}: {digest}; the release pins variant {plan.RELEASED}, so it is unchanged")


@dataclass(frozen=True)
class _Registry:
    """The registry of a stack."""

    client: Client
    urls: Mapping[str, str]

    def push(self, build: Build, builder: ImageEngine) -> str:
        """Build and push unless the tag, which is immutable, exists already; returns the digest."""
        repository = Repository.of(self.urls[build.image])
        known = ecr.digest(self.client, repository, build.tag)
        if known is not None:
            print_line(f"{build.image}: {build.tag} is already in the registry")
            return known
        reference = repository.reference(build.tag)
        engines.run(builder.build(build, reference))
        login = ecr.log_in(self.client, repository)
        engines.run(builder.log_in(login.registry, login.user), standard_input=login.password)
        engines.run(builder.push(reference))
        pushed = ecr.digest(self.client, repository, build.tag)
        if pushed is None:
            raise PlatformError(f"{builder.name} pushed {reference}, but the registry does not have it")
        return pushed


def _registry(environment: str | None) -> _Registry:
    if environment is None:
        raise SettingsError("--push needs the stack whose registry to push to", remedy="name it with --env")
    stack = contract.read_outputs(outputs_of_stack(environment), file=f"outputs of {environment}")
    contract.check_outputs(stack, load_release(), catalog=load_catalog())
    return _Registry(boto3.client("ecr", region_name=stack.region), stack.registries)
