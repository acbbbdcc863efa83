"""Build engines: detection and command lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from infra.lifecycle.image.engines import ENGINES, Answer, Buildah, Docker, ImageEngine, find, run, store_of, succeeds
from infra.lifecycle.image.plan import EPOCH, Build, plan
from infra.lifecycle.image.source import read_source
from infra.spec.errors import PlatformError, RefusedError
from tests.infra.lifecycle.image.samples import checkout, release


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return plan("trainer", release(), read_source(checkout(tmp_path, "trainer"), "trainer"))


def answering(text: str, *names: str) -> Callable[[Sequence[str]], Answer]:
    """A machine on which only these engines can build; the others are off."""
    return lambda command: Answer(text, None if command[0] in names else "off")


def test_the_first_engine_that_can_build_is_chosen() -> None:
    for name in ("docker", "buildah", "podman"):
        assert find(answering("", name)).name == name
    assert find(answering("Name: mine\nDriver: docker-container\n", "docker", "buildah", "podman")).name == "docker"


def test_without_an_engine_the_error_names_each_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"docker: off\n  buildah: off\n  podman: off") as refused:
        find(answering(""))
    assert "install buildah or podman" in refused.value.remedy
    # A builder that cannot set timestamps.
    with pytest.raises(RefusedError, match=r"docker: its builder cannot set .* buildx create --use`\n  buildah"):
        find(answering("Driver:        docker\n", "docker"))
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'docker: unknown command: docker buildx' >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match=r"docker: .*unknown command: docker buildx\n  buildah: not on PATH"):
        find()


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_engine_builds_the_same(engine: ImageEngine, build: Build) -> None:
    for command in (engine.build(build, "name:tag"), engine.release(build, "name:tag")[0]):
        pairs = {command[index + 1] for index, word in enumerate(command) if word == "--build-arg"}
        assert pairs == {f"{key}={value}" for key, value in build.arguments.items()}
        assert command[-1] == str(build.context)
        for option, value in {"--file": str(build.dockerfile), "--target": "cuda", "--platform": "linux/amd64"}.items():
            assert command[command.index(option) + 1] == value
        assert "name:tag" in " ".join(command)
        assert "--annotation" not in command
    annotated = engine.release(replace(build, annotations={"a.b": "numpy==1 timm==2"}), "registry/name:tag")[0]
    assert annotated[annotated.index("--annotation") + 1] == "a.b=numpy==1 timm==2"
    if engine.name == "docker":  # whose own manifests have no annotations
        assert annotated[annotated.index("--output") + 1].endswith(",oci-mediatypes=true")
    login = [engine.name, "login", "--username", "AWS", "--password-stdin", "registry.example"]
    assert engine.log_in("registry.example", "AWS") == login


def test_an_image_and_its_files_have_a_fixed_time(build: Build) -> None:
    assert build.arguments["SOURCE_DATE_EPOCH"] == str(EPOCH)
    for command in (Docker().build(build, "x"), Docker().release(build, "x")[0]):
        assert "rewrite-timestamp=true" in command[command.index("--output") + 1].split(",")
    podman = Buildah("podman").build(build, "x")
    assert podman[podman.index("--timestamp") + 1] == str(EPOCH)


def test_a_release_is_pushed_to_a_registry_without_tls_too(build: Build) -> None:
    [docker] = Docker().release(build, "registry/name:tag")
    assert {"name=registry/name:tag", "push=true"} <= set(docker[docker.index("--output") + 1].split(","))
    assert Buildah().release(build, "registry/name:tag")[-1] == ["buildah", "push", "registry/name:tag"]
    [docker] = Docker().release(build, "10.0.0.1:5000/name:tag", plain_http=True)
    assert "registry.insecure=true" in docker[docker.index("--output") + 1].split(",")
    building, pushing = Buildah().release(build, "10.0.0.1:5000/name:tag", plain_http=True)
    assert pushing == ["buildah", "push", "--tls-verify=false", "--disable-compression", "10.0.0.1:5000/name:tag"]
    assert "--tls-verify=false" in building  # for a base in that registry


def test_a_failed_command_raises_and_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=r"`sh -c exit 7 …` failed with exit status 7"):
        run(["sh", "-c", "exit 7"])
    seen: list[str] = []
    command = ["sh", "-c", "for i in $(seq 100); do echo line $i; done; echo wrong >&2; exit 7"]
    said = r"exit status 7; the end of \S+/log:\n  line 82\n(?s:.*)  line 100\n  wrong$"
    with pytest.raises(PlatformError, match=said):
        run(command, log=tmp_path / "log", watch=seen.append)
    assert seen[0] == "line 1"
    assert (tmp_path / "log").read_text().splitlines() == seen


def test_standard_input_reaches_a_command_and_an_engine_that_does_not_answer_has_no_store(tmp_path: Path) -> None:
    run(["sh", "-c", f"cat > {tmp_path}/said"], standard_input="password")
    assert (tmp_path / "said").read_text() == "password"
    assert store_of(Buildah(str(tmp_path / "none"))) is None
    assert not succeeds(["sh", "-c", "exit 1"])
