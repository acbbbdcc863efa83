"""Programs that build images: docker with buildx, buildah, podman; which is here, and the commands each of them is given."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from infra.lifecycle.image.plan import Build
from infra.spec.errors import PlatformError, RefusedError

PLATFORM = "linux/amd64"
"""That of the nodes, whatever machine builds."""

_PROBE_SECONDS = 30


class ImageEngine(Protocol):
    """Builds and pushes images; each method is a command line, which is run where the person at the keyboard sees it."""

    @property
    def name(self) -> str:
        """Name of the program."""
        ...

    def probe(self) -> list[str]:
        """Succeeds where the program can build."""
        ...

    def build(self, build: Build, reference: str) -> list[str]:
        """Builds and keeps the result under `reference`."""
        ...

    def log_in(self, registry: str, user: str) -> list[str]:
        """Logs in to a registry; the password comes by standard input."""
        ...

    def push(self, reference: str) -> list[str]:
        """Pushes what was built under `reference`."""
        ...


def _instructions(build: Build, reference: str) -> list[str]:
    """The arguments that all programs share."""
    arguments = [part for key, value in build.arguments.items() for part in ("--build-arg", f"{key}={value}")]
    where = ["--platform", PLATFORM, "--file", str(build.dockerfile), "--target", build.target]
    return [*where, *arguments, "--tag", reference]


@dataclass(frozen=True)
class Docker:
    """docker with BuildKit."""

    name: str = "docker"

    def probe(self) -> list[str]:
        """Asks the builder, which needs the plugin buildx and a daemon."""
        return ["docker", "buildx", "inspect"]

    def build(self, build: Build, reference: str) -> list[str]:
        """Attestations would make the result an index, whose digest no two builds share."""
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
    """buildah, or podman, which builds with it; neither needs a daemon."""

    name: str = "buildah"

    def probe(self) -> list[str]:
        """Asks for storage and runtime."""
        return [self.name, "info"]

    def build(self, build: Build, reference: str) -> list[str]:
        """Layers are kept, as docker does."""
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
    """Why a program cannot build here; None where it can."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except FileNotFoundError:
        return "not on PATH"
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` has not answered for {_PROBE_SECONDS} s"
    if answer.returncode == 0:
        return None
    said = answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"]
    return f"`{' '.join(command)}` says: {said[0]}"


def find(why_not: Callable[[Sequence[str]], str | None] = _why_not) -> ImageEngine:
    """The first of the programs that can build here.

    Args:
        why_not: says of a program's probe why it fails; None where it does not.

    Raises:
        RefusedError: none can; says of each why.
    """
    reasons = {}
    for engine in ENGINES:
        reason = why_not(engine.probe())
        if reason is None:
            return engine
        reasons[engine.name] = reason
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    raise RefusedError(
        f"nothing here can build an image:{lines}", remedy="start docker with buildx, or install buildah or podman"
    )


def run(command: Sequence[str], *, standard_input: str | None = None) -> None:
    """Run one of an engine's commands in the foreground.

    Raises:
        PlatformError: it failed; it has printed why.
    """
    finished = subprocess.run(command, check=False, input=standard_input, text=True)
    if finished.returncode != 0:
        raise PlatformError(f"`{' '.join(command[:3])} …` ended with exit status {finished.returncode}; see above")
