"""Build our own images, and push them to an environment's registry."""

from __future__ import annotations

from datetime import UTC, datetime

from infra.lifecycle.image import engines, layers, plan, sbom
from infra.lifecycle.image.ecr import EnvironmentRegistry
from infra.lifecycle.image.plan import Build
from infra.lifecycle.image.push import push
from infra.lifecycle.image.recipes import IMAGES, RECIPES, RELEASED, ImageName
from infra.lifecycle.image.record import write_push
from infra.lifecycle.image.runtime import on_runtime
from infra.lifecycle.image.source import read_source, require_committed
from infra.lifecycle.options import ImageOptions
from infra.lifecycle.sandbox.images.running import push_to_sandbox, running_sandbox
from infra.lifecycle.show import print_line, print_table
from infra.spec.errors import PlatformError, SettingsError
from infra.spec.release import RELEASE_FILE, load_release
from infra.spec.release_rules import ROOT
from infra.spec.settings import load_environment


def image(options: ImageOptions) -> int:
    """Build one image or all; with `--push`, push them and write tags and digests into the release manifest."""
    names: tuple[ImageName, ...] = (options.image,) if options.image else IMAGES
    if options.push and options.env is None:
        raise SettingsError(
            "--push needs the environment whose registry to push to", remedy="name it with ENV=… (--env)"
        )
    if options.env is not None:
        load_environment(options.env)
    sandbox = running_sandbox(options.env) if options.push and options.env else None
    if sandbox is not None:
        return push_to_sandbox(sandbox, names)
    builds = [_plan(name, options) for name in names]
    registry = EnvironmentRegistry.open(options.env) if options.push and options.env else None
    builder = engines.find()
    for build in builds:
        _write_sbom(build)
        if registry is None:
            reference = f"ray-train-platform/{build.image}:{build.tag}"
            engines.run(builder.build(on_runtime(build, builder), reference))
            print_line(f"{build.image}: built by {builder.name} as {reference}")
        else:
            _release(build, push(build, registry, builder))
            _show_layers(build, registry)
    return 0


def _plan(name: ImageName, options: ImageOptions) -> Build:
    source, release = read_source(ROOT, name), load_release()
    if options.push:
        require_committed(source, name)
        plan.require_pinned_base(release)
    torch = plan.torch_choice(options.variant) if RECIPES[name].has_variants else None
    return plan.plan(name, release, source, variant=options.variant, torch=torch)


def _write_sbom(build: Build) -> None:
    file = sbom.write(ROOT, build, sbom.document(build))
    print_line(f"{build.image}: {len(sbom.packages(build))} packages, SBOM in {file.relative_to(ROOT)}")


def _release(build: Build, digest: str) -> None:
    if not build.is_released:
        print_line(f"{build.image}: {digest}; the release pins variant {RELEASED}, so it is unchanged")
        return
    today = datetime.now(UTC).date()
    write_push(RELEASE_FILE, build.image, tag=build.tag, digest=digest, revision=build.revision, today=today)
    print_line(f"{build.image}: {build.tag}, {digest} written to {RELEASE_FILE.name}; commit it")


def _show_layers(build: Build, registry: EnvironmentRegistry) -> None:
    """Print the layers' sizes. The image is pushed and recorded by now, so a registry that does not answer fails nothing."""
    try:
        repository = registry.remote(load_release().images[build.image])
        manifest = repository.manifest(build.tag)
        if manifest is not None:
            print_table(layers.layer_table(build.image, layers.read_layers(repository, manifest)))
    except PlatformError as error:
        print_line(f"{build.image}: no table of layers: {error.args[0]}")
