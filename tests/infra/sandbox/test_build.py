"""Building the control plane's programs, with a compiler that only notes what it was asked."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.errors import RefusedError, StackError
from infra.lifecycle.sandbox.build import build
from infra.lifecycle.sandbox.programs import SOURCES, find, kubernetes_version

_GO = """#!/bin/sh
echo "$PWD $@" >>{notes}
while [ "$1" != -o ]; do shift; done
{does}
"""


class Compiler:
    """A `go` of PATH, and what it was asked."""

    def __init__(self, folder: Path, *, does: str = 'echo program >"$2"; chmod +x "$2"') -> None:
        folder.mkdir()
        self._notes = folder / "notes"
        self._notes.touch()
        go = folder / "go"
        go.write_text(_GO.format(notes=self._notes, does=does))
        go.chmod(0o755)
        self.environment = {"PATH": f"{folder}:{os.environ['PATH']}", "RTP_ENGINES": str(folder.parent / "cache")}

    @property
    def calls(self) -> list[str]:
        """Folder and arguments of each call."""
        return self._notes.read_text().splitlines()


def silent(_line: str) -> None:
    """Show no progress."""


def test_every_program_is_built_from_its_own_module(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    folder = build(compiler.environment, say=silent)
    assert {path.name for path in folder.iterdir()} == set(SOURCES)
    for call, source in zip(compiler.calls, SOURCES.values(), strict=True):
        assert call.split()[0].endswith(f"engines/{source.module}")
        assert call.endswith(f" {source.package}")


def test_programs_are_stamped_with_the_version_that_clients_read(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    assert all(f"version.gitVersion=v{kubernetes_version()} " in call for call in compiler.calls)


def test_what_was_built_is_found(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    folder = build(compiler.environment, say=silent)
    environment = {**compiler.environment, "PATH": ""}
    assert {path.parent for path in find(environment).values()} == {folder}


def test_a_second_build_does_nothing_and_needs_no_go(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    build({**compiler.environment, "PATH": ""}, say=silent)
    assert len(compiler.calls) == len(SOURCES)


def test_of_two_builders_one_builds(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin", does='sleep 0.05; echo program >"$2"')
    with ThreadPoolExecutor(2) as pool:
        folders = list(pool.map(lambda _: build(compiler.environment, say=silent), range(2)))
    assert folders[0] == folders[1]
    assert len(compiler.calls) == len(SOURCES)


def test_a_failed_build_says_what_go_said_and_leaves_no_folder_that_looks_built(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin", does="echo 'no such host: proxy' >&2; exit 1")
    with pytest.raises(StackError, match="no such host: proxy"):
        build(compiler.environment, say=silent)
    with pytest.raises(RefusedError):
        find({**compiler.environment, "PATH": ""})


def test_a_build_goes_on_after_one_that_was_interrupted(tmp_path: Path) -> None:
    broken = Compiler(tmp_path / "broken", does='echo half >"$2"; exit 1')
    with pytest.raises(StackError):
        build(broken.environment, say=silent)
    assert len(list(build(Compiler(tmp_path / "bin").environment, say=silent).iterdir())) == len(SOURCES)


def test_without_go_the_message_names_the_version_to_install(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no `go` on PATH\n  remedy: install Go 1\.\d+"):
        build({"PATH": "", "RTP_ENGINES": str(tmp_path)}, say=silent)


def test_progress_says_how_many_programs_there_are(tmp_path: Path) -> None:
    lines: list[str] = []
    build(Compiler(tmp_path / "bin").environment, say=lines.append)
    assert f"1 of {len(SOURCES)}: etcd" in lines
