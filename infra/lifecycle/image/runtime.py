"""The stage `runtime` of our images, all but the code, as an image of its own in an engine's store.

buildah and podman look an instruction `COPY --from` up in their cache only after they have copied: gigabytes of packages, for
minutes, to find out that nothing changed. On an image of the stage, a change of code builds in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from infra.lifecycle.image import engines
from infra.lifecycle.image.disk import Need, require_room
from infra.lifecycle.image.engines import ImageEngine
from infra.lifecycle.image.plan import EngineBuild

STAGE = "runtime"
ARGUMENT = "RUNTIME_IMAGE"


def runtime_reference(build: EngineBuild) -> str:
    """Name of the image of a build's stage in the engine's store; equal content, as of trainer and session, has an equal name."""
    return f"localhost/ray-train-platform/{STAGE}:{build.runtime}"


def has_runtime(build: EngineBuild, engine: ImageEngine) -> bool:
    """Whether the engine has all but the code of a build as an image."""
    return build.runtime is not None and engines.succeeds(engine.has(runtime_reference(build)))


def needed_room(build: EngineBuild, engine: ImageEngine) -> list[Need]:
    """Room for all but the code of a build; none where it is there, or where nobody knows what the engine's cache has."""
    store = None if engine.looks_before_it_copies or has_runtime(build, engine) else engines.store_of(engine)
    if store is None or build.runtime is None:
        return []
    return [Need(store, build.room, f"the build of {build.image}")]


def on_runtime(
    build: EngineBuild, engine: ImageEngine, *, run: Callable[[Sequence[str]], None] = engines.run
) -> EngineBuild:
    """The same build on an image of its stage, which is built unless the engine has it.

    Args:
        build: what to build.
        engine: engine that builds it; the build stays as it is if the engine's cache needs no help.
        run: runs the engine's command.

    Raises:
        RefusedError: the disk is too small.
        PlatformError: the engine failed.
    """
    if build.runtime is None or engine.looks_before_it_copies:
        return build
    reference = runtime_reference(build)
    if not has_runtime(build, engine):
        require_room(needed_room(build, engine))
        run(engine.build(replace(build, target=STAGE), reference))
    return replace(build, arguments={**build.arguments, ARGUMENT: reference})
