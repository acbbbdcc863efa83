"""Engines that build images: docker with buildx, buildah, podman; detection and command lines."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from infra.lifecycle.image.plan import Build
from infra.spec.errors import PlatformError, RefusedError

PLATFORM = "linux/amd64"
"""Platform of the nodes, independent of the build machine."""

_PROBE_SECONDS = 30


class ImageEngine(Protocol):
    """Builds and pushes images; each method returns a command line, which runs in the foreground."""

    @property
    def name(self) -> str:
        """Name of the program."""
        ...

    def probe(self) -> list[str]:
        """Command that succeeds if the engine can build."""
        ...

    def build(self, build: Build, reference: str) -> list[str]:
        """Command that builds an image tagged `reference`."""
        ...

    def log_in(self, registry: str, user: str) -> list[str]:
        """Command that logs in to a registry; reads the password from standard input."""
        ...

    def push(self, reference: str) -> list[str]:
        """Command that pushes the image `reference`."""
        ...


def _instructions(build: Build, reference: str) -> list[str]:
    """The arguments that all engines share."""
    arguments = [part for key, value in build.arguments.items() for part in ("--build-arg", f"{key}={value}")]
    where = ["--platform", PLATFORM, "--file", str(build.dockerfile), "--target", build.target]
    return [*where, *arguments, "--tag", reference]


@dataclass(frozen=True)
class Docker:
    """docker with BuildKit."""

    name: str = "docker"

    def probe(self) -> list[str]:
        """Inspect the builder, which needs the buildx plugin and a daemon."""
        return ["docker", "buildx", "inspect"]

    def build(self, build: Build, reference: str) -> list[str]:
        """Without attestations: they would make the image an index whose digest is not reproducible."""
        epoch = ["--build-arg", f"SOURCE_DATE_EPOCH={build.committed}"]
        options = ["--load", "--provenance=false", *epoch]
        return ["docker", "buildx", "build", *options, *_instructions(build, reference), str(build.context)]

    def log_in(self, registry: str, user: str) -> list[str]:
        """See `ImageEngine.log_in`."""
        return ["docker", "login", "--username", user, "--password-stdin", registry]

    def push(self, reference: str) -> list[str]:
        """See `ImageEngine.push`."""
        return ["docker", "push", reference]


@dataclass(frozen=True)
class Buildah:
    """buildah, or podman, which embeds it; neither needs a daemon."""

    name: str = "buildah"

    def probe(self) -> list[str]:
        """Check storage and runtime."""
        return [self.name, "info"]

    def build(self, build: Build, reference: str) -> list[str]:
        """With `--layers`, to cache layers as docker does."""
        options = ["--layers", "--timestamp", str(build.committed)]
        return [self.name, "build", *options, *_instructions(build, reference), str(build.context)]

    def log_in(self, registry: str, user: str) -> list[str]:
        """See `ImageEngine.log_in`."""
        return [self.name, "login", "--username", user, "--password-stdin", registry]

    def push(self, reference: str) -> list[str]:
        """See `ImageEngine.push`."""
        return [self.name, "push", reference]


ENGINES: tuple[ImageEngine, ...] = (Docker(), Buildah(), Buildah("podman"))


def _why_not(command: Sequence[str]) -> str | None:
    """Why an engine cannot build here; None if it can."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except FileNotFoundError:
        return "not on PATH"
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` timed out after {_PROBE_SECONDS} s"
    if answer.returncode == 0:
        return None
    said = answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"]
    return f"`{' '.join(command)}` failed: {said[0]}"


def find(why_not: Callable[[Sequence[str]], str | None] = _why_not) -> ImageEngine:
    """The first engine that can build here.

    Args:
        why_not: the reason an engine's probe fails; None if it succeeds.

    Raises:
        RefusedError: none can; gives the reason for each.
    """
    reasons = {}
    for engine in ENGINES:
        reason = why_not(engine.probe())
        if reason is None:
            return engine
        reasons[engine.name] = reason
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    raise RefusedError(
        f"no engine on this machine can build an image:{lines}",
        remedy="start docker with buildx, or install buildah or podman",
    )


def run(command: Sequence[str], *, standard_input: str | None = None) -> None:
    """Run an engine's command in the foreground.

    Raises:
        PlatformError: it failed; its own output says why.
    """
    finished = subprocess.run(command, check=False, input=standard_input, text=True)
    if finished.returncode != 0:
        raise PlatformError(f"`{' '.join(command[:3])} …` failed with exit status {finished.returncode}; see above")
