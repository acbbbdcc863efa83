"""Overlays, installed by the real uv from wheels made by hand."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from infra.packages import overlay as module
from infra.packages.overlay import THIS_PYTHON, Overlay, Target, overlay
from infra.packages.requirements import Platform
from infra.spec.errors import RefusedError
from tests.infra.packages.wheels import use_only, wheel

PLATFORM = Platform(locked={"arrays": "2.4.1", "absent": "3.0"}, installed={"arrays": "2.4.1"}.get)
LINUX = Target(python="3.11", platform="x86_64-manylinux_2_28")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that uv installs from: `greeter` 1.0 needs `words` and the platform's `arrays`."""
    folder = tmp_path / "wheels"
    use_only(folder, monkeypatch)
    wheel(folder, "greeter", "1.0", needs=["words>=1", "arrays>=2"])
    wheel(folder, "words", "1.2")
    wheel(folder, "arrays", "2.4.1")
    wheel(folder, "arrays", "9.0")
    return folder


def install(root: Path, *names: str, target: Target = THIS_PYTHON, said: list[str] | None = None) -> Overlay:
    say = print if said is None else said.append
    return overlay([Requirement(name) for name in names], PLATFORM, target, root=root, say=say)


def names(found: Overlay) -> list[str]:
    return [f"{one.name}=={one.version}" for one in found.contents]


@pytest.mark.usefixtures("wheels")
def test_an_overlay_has_what_the_platform_lacks_and_nothing_else(tmp_path: Path) -> None:
    said: list[str] = []
    found = install(tmp_path / "overlays", "greeter", said=said)
    assert names(found) == ["greeter==1.0", "words==1.2"]
    assert all(len(one.hashes) == 1 for one in found.contents)
    assert sorted(one.name for one in found.packages.glob("*.py")) == ["greeter.py", "words.py"]
    assert said[0].startswith("installing greeter into ")
    assert said[1:] == ["installed greeter 1.0, words 1.2"]
    code = "import greeter, words; print(greeter.VERSION, words.VERSION)"
    environment = {"PYTHONPATH": str(found.packages)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    assert ran.stdout.split() == [b"1.0", b"1.2"]


@pytest.mark.usefixtures("wheels")
def test_a_second_call_finds_the_overlay_without_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = install(tmp_path / "overlays", "greeter", "words")
    monkeypatch.setattr(subprocess, "run", None)
    assert install(tmp_path / "overlays", "words", "greeter") == first


@pytest.mark.usefixtures("wheels")
def test_another_release_or_python_has_another_overlay(tmp_path: Path) -> None:
    root = tmp_path / "overlays"
    found = {install(root, "words"), install(root, "words", target=LINUX), install(root, "words<9")}
    newer = Platform(locked={**PLATFORM.locked, "arrays": "2.5"}, installed=PLATFORM.installed)
    found.add(overlay([Requirement("words")], newer, THIS_PYTHON, root=root, say=print))
    assert len(found) == 4


def test_a_locked_package_has_the_locked_version_and_another_the_newest_that_fits(wheels: Path, tmp_path: Path) -> None:
    for version in ("3.0", "4.0"):
        wheel(wheels, "absent", version)
    assert names(install(tmp_path / "overlays", "absent")) == ["absent==3.0"]
    wheel(wheels, "tool", "1.0", needs=["arrays>=2,<3"])
    wheel(wheels, "tool", "2.0", needs=["arrays>=9"])
    assert names(install(tmp_path / "overlays", "tool")) == ["tool==1.0"]


def test_a_package_that_needs_another_version_of_the_platforms_is_refused(wheels: Path, tmp_path: Path) -> None:
    wheel(wheels, "old", "1.0", needs=["arrays<2"])
    with pytest.raises(RefusedError) as refused:
        install(tmp_path / "overlays", "old")
    said = " ".join(str(refused.value).split())  # uv wraps its lines
    assert "all versions of old depend on arrays<2 and arrays==2.4.1" in said
    assert "requirements.lock" in refused.value.remedy
    assert [one.name for one in (tmp_path / "overlays").iterdir()] == ["lock"]


@pytest.mark.usefixtures("wheels")
def test_an_unknown_name_is_refused_with_uvs_words(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"uv says:(.|\n)*nowhere-to-be-found(.|\n)*UV_DEFAULT_INDEX"):
        install(tmp_path / "overlays", "nowhere-to-be-found")


def test_a_failed_build_is_refused_with_its_last_lines(wheels: Path, tmp_path: Path) -> None:
    with tarfile.open(wheels / "unbuildable-1.0.tar.gz", "w:gz") as archive:
        files = {
            "PKG-INFO": "Metadata-Version: 2.1\nName: unbuildable\nVersion: 1.0\n",
            "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'no_such_backend'\n",
        }
        for name, text in files.items():
            member = tarfile.TarInfo(f"unbuildable-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    with pytest.raises(RefusedError, match=r"No module named 'no_such_backend'"):
        install(tmp_path / "overlays", "unbuildable")
    assert [one.name for one in (tmp_path / "overlays").iterdir()] == ["lock"]


def test_wheels_of_another_platform_are_installed_for_it_and_not_for_this_one(wheels: Path, tmp_path: Path) -> None:
    wheel(wheels, "native", "1.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    wheel(wheels, "foreign", "1.0", tag="cp311-cp311-manylinux_2_28_aarch64")
    assert names(install(tmp_path / "overlays", "native", target=LINUX)) == ["native==1.0"]
    with pytest.raises(RefusedError, match="foreign"):
        install(tmp_path / "overlays", "foreign", target=LINUX)


@pytest.mark.usefixtures("wheels")
def test_programs_for_another_machine_start_its_python(tmp_path: Path) -> None:
    here, there = install(tmp_path / "overlays", "words"), install(tmp_path / "overlays", "words", target=LINUX)
    assert subprocess.run([here.packages / "bin/words"], env={"PYTHONPATH": str(here.packages)}, check=True,
                          capture_output=True).stdout == b"1.2\n"  # fmt: skip
    assert (there.packages / "bin/words").read_text().splitlines()[0] == "#!/usr/bin/env python3"
    assert not [one for one in there.packages.rglob("*") if one.is_file() and sys.prefix.encode() in one.read_bytes()]


@pytest.mark.usefixtures("wheels")
def test_a_second_command_waits_and_installs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, released, installed = threading.Event(), threading.Event(), []
    real = module._install

    def held(*arguments: object) -> None:
        installed.append(arguments)
        started.set()
        assert released.wait(60)
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_install", held)
    root, found, said = tmp_path / "overlays", [], []

    def second(line: str) -> None:
        said.append(line)
        if line.startswith("waiting"):
            assert not [one for one in root.iterdir() if (one / "packages").is_dir()]
            released.set()

    threads = [threading.Thread(target=lambda: found.append(install(root, "words", said=[])))]
    threads[0].start()
    assert started.wait(60)
    found.append(overlay([Requirement("words")], PLATFORM, THIS_PYTHON, root=root, say=second))
    threads[0].join()
    assert found[0] == found[1]
    assert len(installed) == 1
    assert said == ["waiting for another command that installs packages"]


@pytest.mark.usefixtures("wheels")
def test_what_a_killed_command_left_is_deleted_and_never_used(tmp_path: Path) -> None:
    left = tmp_path / "overlays/part-killed/ready/packages"
    left.mkdir(parents=True)
    install(tmp_path / "overlays", "words")
    assert not (tmp_path / "overlays/part-killed").exists()


def test_without_uv_the_remedy_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match=r"no `uv`.*\n.*make env"):
        install(tmp_path / "overlays", "words")
