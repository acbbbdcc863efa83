"""Build engines: detection and command lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from infra.lifecycle.image.engines import ENGINES, Buildah, Docker, ImageEngine, find, run
from infra.lifecycle.image.plan import Build, plan, read_source
from infra.spec.errors import PlatformError, RefusedError
from tests.infra.lifecycle.image.samples import checkout, release


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A build of the trainer."""
    return plan("trainer", release(), read_source(checkout(tmp_path, "trainer"), "trainer"))


def only(name: str) -> object:
    """A machine on which only one engine can build."""

    def why_not(command: Sequence[str]) -> str | None:
        return None if command[0] == name else "not on PATH"

    return why_not


@pytest.mark.parametrize("name", ["docker", "buildah", "podman"])
def test_the_available_engine_is_chosen(name: str) -> None:
    assert find(only(name)).name == name  # type: ignore[arg-type]


def test_docker_is_preferred() -> None:
    assert find(lambda _: None).name == "docker"


def test_without_an_engine_the_error_names_each_reason() -> None:
    with pytest.raises(RefusedError, match=r"docker: off\n  buildah: off\n  podman: off") as refused:
        find(lambda _: "off")
    assert "install buildah or podman" in refused.value.remedy


def test_docker_without_buildx_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'docker: unknown command: docker buildx' >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match=r"docker: .*unknown command: docker buildx\n  buildah: not on PATH"):
        find()


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_engine_builds_the_same(engine: ImageEngine, build: Build) -> None:
    command = engine.build(build, "name:tag")
    pairs = {command[index + 1] for index, word in enumerate(command) if word == "--build-arg"}
    assert {f"{key}={value}" for key, value in build.arguments.items()} <= pairs
    assert command[-1] == str(build.context)
    for option, value in {
        "--file": str(build.dockerfile),
        "--target": "cuda",
        "--tag": "name:tag",
        "--platform": "linux/amd64",
    }.items():
        assert command[command.index(option) + 1] == value


def test_an_image_has_the_time_of_its_commit(build: Build) -> None:
    assert f"SOURCE_DATE_EPOCH={build.committed}" in Docker().build(build, "x")
    podman = Buildah("podman").build(build, "x")
    assert podman[podman.index("--timestamp") + 1] == str(build.committed)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_no_command_line_contains_the_password(engine: ImageEngine) -> None:
    assert engine.log_in("registry.example", "AWS") == [
        engine.name,
        "login",
        "--username",
        "AWS",
        "--password-stdin",
        "registry.example",
    ]


def test_a_failed_command_raises() -> None:
    with pytest.raises(PlatformError, match=r"`sh -c exit 7 …` failed with exit status 7"):
        run(["sh", "-c", "exit 7"])


def test_standard_input_reaches_the_command(tmp_path: Path) -> None:
    run(["sh", "-c", f"cat > {tmp_path}/said"], standard_input="password")
    assert (tmp_path / "said").read_text() == "password"
