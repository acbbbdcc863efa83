"""Engines that build images: docker with buildx, buildah, podman; detection and command lines.

Every engine sets the timestamps of image and files, so that it gives the same digest when it builds the same content again.
Digests of different engines differ, because they write layers differently.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from infra.lifecycle.image.plan import EPOCH, EngineBuild
from infra.spec.errors import PlatformError, RefusedError

PLATFORM = "linux/amd64"
"""Platform of the nodes, independent of the build machine."""

_PROBE_SECONDS = 30
_TAIL_LINES = 20


class ImageEngine(Protocol):
    """Builds and pushes images; each method returns a command line, which runs in the foreground."""

    @property
    def name(self) -> str:
        """Name of the program."""
        ...

    @property
    def looks_before_it_copies(self) -> bool:
        """Whether its cache finds a copy between stages without copying; see `image.runtime`."""
        ...

    def probe(self) -> list[str]:
        """Command that succeeds if the engine can build."""
        ...

    def shortcoming(self, answer: str) -> str | None:
        """Why the engine cannot build reproducibly, from what its probe printed; None if it can."""
        ...

    def build(self, build: EngineBuild, reference: str) -> list[str]:
        """Command that builds an image tagged `reference`, for this machine."""
        ...

    def release(self, build: EngineBuild, reference: str, *, plain_http: bool = False) -> list[list[str]]:
        """Commands that build the image `reference` and push it; `plain_http` for a registry without TLS."""
        ...

    def has(self, reference: str) -> list[str]:
        """Command that succeeds if the engine has the image."""
        ...

    def pull(self, reference: str) -> list[str]:
        """Command that pulls an image."""
        ...

    def store(self) -> list[str]:
        """Command that prints the folder of the engine's images, on the engine's machine."""
        ...

    def log_in(self, registry: str, user: str) -> list[str]:
        """Command that logs in to a registry; reads the password from standard input."""
        ...


def _instructions(build: EngineBuild) -> list[str]:
    """The arguments that all engines share."""
    arguments = [part for key, value in build.arguments.items() for part in ("--build-arg", f"{key}={value}")]
    annotations = [part for key, value in build.annotations.items() for part in ("--annotation", f"{key}={value}")]
    files = ["--file", str(build.dockerfile), "--target", build.target]
    return ["--platform", PLATFORM, *files, *arguments, *annotations]


@dataclass(frozen=True)
class Docker:
    """docker with BuildKit, in a builder of its own: the builder inside the daemon cannot rewrite timestamps (moby/buildkit#4230)."""

    name: str = "docker"
    looks_before_it_copies: bool = True

    def probe(self) -> list[str]:
        """Inspect the builder, which needs the buildx plugin and a daemon."""
        return ["docker", "buildx", "inspect"]

    def shortcoming(self, answer: str) -> str | None:
        """See `ImageEngine.shortcoming`."""
        driver = re.search(r"^Driver:\s*(\S+)", answer, re.MULTILINE)
        if driver is None or driver[1] != "docker":
            return None
        return "its builder cannot set the timestamps of files; make one: `docker buildx create --use`"

    def build(self, build: EngineBuild, reference: str) -> list[str]:
        """See `ImageEngine.build`."""
        return [
            *self._build(build),
            "--output",
            "type=docker,rewrite-timestamp=true",
            "--tag",
            reference,
            str(build.context),
        ]

    def release(self, build: EngineBuild, reference: str, *, plain_http: bool = False) -> list[list[str]]:
        """BuildKit pushes what it built; the daemon would compress the layers again."""
        output = f"type=image,name={reference},push=true,rewrite-timestamp=true"
        if build.annotations:  # Docker's own manifests have none
            output += ",oci-mediatypes=true"
        if plain_http:
            output += ",registry.insecure=true"
        return [[*self._build(build), "--output", output, str(build.context)]]

    def _build(self, build: EngineBuild) -> list[str]:
        """Without attestations: they contain times, and make the image an index."""
        return ["docker", "buildx", "build", "--provenance=false", "--sbom=false", *_instructions(build)]

    def has(self, reference: str) -> list[str]:
        """See `ImageEngine.has`."""
        return ["docker", "image", "inspect", reference]

    def pull(self, reference: str) -> list[str]:
        """See `ImageEngine.pull`."""
        return ["docker", "pull", "--platform", PLATFORM, reference]

    def store(self) -> list[str]:
        """See `ImageEngine.store`."""
        return ["docker", "info", "--format", "{{.DockerRootDir}}"]

    def log_in(self, registry: str, user: str) -> list[str]:
        """See `ImageEngine.log_in`."""
        return ["docker", "login", "--username", user, "--password-stdin", registry]


@dataclass(frozen=True)
class Buildah:
    """buildah, or podman, which embeds it; neither needs a daemon."""

    name: str = "buildah"
    looks_before_it_copies: bool = False

    def probe(self) -> list[str]:
        """Check storage and runtime."""
        return [self.name, "info"]

    def shortcoming(self, answer: str) -> str | None:
        """See `ImageEngine.shortcoming`."""
        del answer
        return None

    def build(self, build: EngineBuild, reference: str) -> list[str]:
        """See `ImageEngine.build`."""
        return self._build(build, reference, [])

    def _build(self, build: EngineBuild, reference: str, extra: list[str]) -> list[str]:
        """With `--layers`, to cache layers as docker does."""
        options = ["--layers", "--timestamp", str(EPOCH), *extra]
        return [self.name, "build", *options, *_instructions(build), "--tag", reference, str(build.context)]

    def release(self, build: EngineBuild, reference: str, *, plain_http: bool = False) -> list[list[str]]:
        """See `ImageEngine.release`."""
        options = ["--tls-verify=false"] if plain_http else []
        # A registry on this machine is a copy of the disk away: compressing takes minutes there, and saves nothing.
        uncompressed = ["--disable-compression"] if plain_http and self.name.endswith("buildah") else []
        return [self._build(build, reference, options), [self.name, "push", *options, *uncompressed, reference]]

    def has(self, reference: str) -> list[str]:
        """See `ImageEngine.has`."""
        return [self.name, "inspect", "--type", "image", reference]

    def pull(self, reference: str) -> list[str]:
        """See `ImageEngine.pull`."""
        return [self.name, "pull", "--platform", PLATFORM, reference]

    def store(self) -> list[str]:
        """See `ImageEngine.store`."""
        field = "store.GraphRoot" if self.name.endswith("buildah") else "Store.GraphRoot"
        return [self.name, "info", "--format", f"{{{{.{field}}}}}"]

    def log_in(self, registry: str, user: str) -> list[str]:
        """See `ImageEngine.log_in`."""
        return [self.name, "login", "--username", user, "--password-stdin", registry]


class Answer(NamedTuple):
    """What a probe printed, and why it failed; None if it succeeded."""

    text: str
    reason: str | None


ENGINES: tuple[ImageEngine, ...] = (Docker(), Buildah(), Buildah("podman"))


def _ask(command: Sequence[str]) -> Answer:
    """Run an engine's probe."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except FileNotFoundError:
        return Answer("", "not on PATH")
    except subprocess.TimeoutExpired:
        return Answer("", f"`{' '.join(command)}` timed out after {_PROBE_SECONDS} s")
    if answer.returncode == 0:
        return Answer(answer.stdout, None)
    said = answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"]
    return Answer("", f"`{' '.join(command)}` failed: {said[0]}")


def find(ask: Callable[[Sequence[str]], Answer] = _ask) -> ImageEngine:
    """The first engine that can build here.

    Args:
        ask: runs an engine's probe.

    Raises:
        RefusedError: none can; gives the reason for each.
    """
    reasons = {}
    for engine in ENGINES:
        answer = ask(engine.probe())
        reason = answer.reason or engine.shortcoming(answer.text)
        if reason is None:
            return engine
        reasons[engine.name] = reason
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    raise RefusedError(
        f"no engine on this machine can build an image:{lines}",
        remedy="start docker with buildx, or install buildah or podman: apt-get install buildah",
    )


def succeeds(command: Sequence[str]) -> bool:
    """Whether an engine's command succeeds; what it prints is dropped."""
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def store_of(engine: ImageEngine) -> Path | None:
    """The folder of an engine's images; None if the engine does not say, or it is on another machine."""
    answer = _ask(engine.store())
    folder = Path(answer.text.strip() or "/nowhere")
    return folder if answer.reason is None and folder.is_dir() else None


def run(
    command: Sequence[str],
    *,
    standard_input: str | None = None,
    log: Path | None = None,
    watch: Callable[[str], None] = lambda _: None,
) -> None:
    """Run an engine's command in the foreground.

    Args:
        command: the command.
        standard_input: its standard input.
        log: file for its output; None leaves the output to the terminal.
        watch: called with every line that goes to the log.

    Raises:
        PlatformError: it failed; carries the end of the log, or the engine's own output says why.
    """
    if log is None:
        status = subprocess.run(command, check=False, input=standard_input, text=True).returncode
        reason = "see above"
    else:
        status = _run_logged(command, log, watch)
        reason = f"the end of {log}:\n{tail(log)}"
    if status != 0:
        raise PlatformError(f"`{' '.join(command[:3])} …` failed with exit status {status}; {reason}")


def _run_logged(command: Sequence[str], log: Path, watch: Callable[[str], None]) -> int:
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            file.flush()
            watch(line.rstrip())
        return process.wait()


def tail(log: Path) -> str:
    """The last lines of a log, indented."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
