"""Our images in a sandbox's registry: built from this checkout, unless the registry has what would be built."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from infra.lifecycle.image import engines, plan
from infra.lifecycle.image.disk import Need, require_room
from infra.lifecycle.image.engines import ImageEngine
from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.lifecycle.image.plan import BASE, Build
from infra.lifecycle.image.push import push
from infra.lifecycle.image.recipes import IMAGES, RECIPES, ImageName
from infra.lifecycle.image.runtime import has_runtime, needed_room
from infra.lifecycle.image.source import read_source
from infra.lifecycle.sandbox.images.release import NO_AUTHORITY, sandbox_release
from infra.lifecycle.sandbox.images.stand_in import known_stand_in, stand_in
from infra.spec.release import load_release
from infra.spec.release_rules import ROOT

Say = Callable[[str], None]
"""Prints a line of progress."""

_STORED = 1 / 5
"""Part of a build's room that the registry needs, where buildah does not compress layers."""


def base_image(builder: ImageEngine, *, say: Say) -> str:
    """The reference of the base of our images: the release's where it can be pulled, else a stand-in.

    A stand-in that exists is used without a new attempt, because engines try for a quarter of a minute to reach a registry.

    Raises:
        PlatformError: there is neither; see `stand_in`.
    """
    release = load_release()
    pinned, python = release.images[BASE].reference(), release.stack.python
    if engines.succeeds(builder.has(pinned)):
        return pinned
    found = known_stand_in(builder, python=python)
    if found is None:
        if engines.succeeds(builder.pull(pinned)):
            return pinned
        found = stand_in(builder, python=python, say=say)
    say(f"WARNING: images are built on a stand-in for {pinned}, which could not be pulled: {found} is made of this")
    say("WARNING: machine's Python, programs and libraries, and differs from what an environment runs. To try again:")
    say(f"WARNING:   {builder.name} rmi {found}")
    return found


def publish(
    registry: PlainRegistry,
    *,
    logs: Path,
    say: Say,
    names: Iterable[ImageName] = IMAGES,
    authority: bytes = NO_AUTHORITY,
    storage: Path | None = None,
    root: Path = ROOT,
) -> Mapping[str, str]:
    """Bring our images into the registry; returns their digests by name.

    An image is built if files or settings that it is made of have changed since the last push, also without a commit.

    Args:
        registry: the sandbox's registry.
        logs: folder for the engine's output.
        say: prints a line of progress.
        names: the images.
        authority: see `sandbox_release`.
        storage: folder of the registry's images, to check its room; None does not.
        root: the checkout to build from.

    Raises:
        RefusedError: no engine can build here, or the disk is too small.
        PlatformError: a build failed; carries the end of its output.
    """
    builder = engines.find()
    base = base_image(builder, say=say)
    builds = [sandbox_build(name, base=base, authority=authority, root=root) for name in names]
    entries = load_release().images
    missing = [build for build in builds if registry.digest(entries[build.image], build.tag) is None]
    _require_room(builder, missing, storage)
    return {build.image: _push(build, registry, builder, logs=logs, say=say) for build in builds}


def sandbox_build(
    name: ImageName,
    *,
    base: str,
    authority: bytes = NO_AUTHORITY,
    root: Path = ROOT,
    environment: Mapping[str, str] = os.environ,
) -> Build:
    """Plan an image for a sandbox's nodes, which have no GPUs: without EFA, and with the locked torch or another build of it.

    Args:
        name: the image.
        base: reference of the base image.
        authority: see `sandbox_release`.
        root: the checkout to build from.
        environment: may name another build of torch, see `plan.torch_choice`.
    """
    release = sandbox_release(load_release(), base=base, authority=authority)
    chosen = (
        plan.torch_choice("cpu", environment)
        if RECIPES[name].has_variants and environment.get("TORCH_VERSION")
        else None
    )
    return plan.plan(name, release, read_source(root, name), variant="cpu", torch=chosen)


def _require_room(builder: ImageEngine, builds: Iterable[Build], storage: Path | None) -> None:
    """Refuse a disk that is too small for the builds together; a change of code needs next to nothing."""
    needs = []
    for build in {build.runtime: build for build in builds}.values():  # trainer and session share theirs
        needs += needed_room(build, builder)
        if storage is not None and not has_runtime(build, builder):
            needs.append(Need(storage, int(build.room * _STORED), f"{build.image} in the registry"))
    require_room(needs)


def _push(build: Build, registry: PlainRegistry, builder: ImageEngine, *, logs: Path, say: Say) -> str:
    log, started = logs / f"{build.image}.log", time.monotonic()
    log.unlink(missing_ok=True)

    def watch(line: str) -> None:
        if "STEP " in line or line.startswith(("Copying blob", "environment: ")):
            say(f"{build.image}: {line[:120]}")

    say(f"{build.image}: {build.tag}")
    digest = push(build, registry, builder, log=log, watch=watch)
    if log.exists():
        say(f"{build.image}: built and pushed in {time.monotonic() - started:.0f} s")
    return digest
