"""Wait for a running build, with a fake compiler that blocks until the test lets it continue."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.build import build
from infra.lifecycle.sandbox.modules import KUBERNETES
from infra.lifecycle.sandbox.programs import find_programs
from infra.spec.errors import PlatformError, RefusedError
from tests.engines.engines_build import await_build, is_build_running
from tests.infra.lifecycle.sandbox.test_build import Compiler, silent


class Gate:
    """A pipe that blocks the compiler until the test opens the other end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.wait = f"cat {path}"
        """Shell command that blocks."""

    def release_next(self) -> None:
        """Wait until a compiler blocks, and release it."""
        self._path.open("wb").close()

    def release_any(self) -> None:
        """Release a compiler if one blocks."""
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            time.sleep(0.01)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def is_built_after_waiting(environment: Mapping[str, str]) -> bool:
    await_build(environment)
    try:
        find_programs({**environment, "PATH": ""})
    except RefusedError:
        return False
    return True


def test_waiting_ends_when_the_build_is_complete(tmp_path: Path, gate: Gate) -> None:
    environment = Compiler(tmp_path / "bin", does=f'{gate.wait}; echo program >"$2"; chmod +x "$2"').environment
    with ThreadPoolExecutor(2) as pool:
        building = pool.submit(build, environment, say=silent)
        gate.release_next()
        assert is_build_running(environment)
        waiting = pool.submit(is_built_after_waiting, environment)
        while not building.done():
            gate.release_any()
        assert waiting.result()
    assert not is_build_running(environment)


def test_waiting_ends_when_the_build_fails(tmp_path: Path, gate: Gate) -> None:
    environment = Compiler(tmp_path / "bin", does=f"{gate.wait}; exit 1").environment
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build, environment, say=silent)
        gate.release_next()
        assert not is_built_after_waiting(environment)
        with pytest.raises(PlatformError):
            building.result()


def test_waiting_for_a_module_ends_when_it_is_built_though_the_build_goes_on(tmp_path: Path, gate: Gate) -> None:
    environment = Compiler(tmp_path / "bin", does=f'{gate.wait}; echo program >"$2"; chmod +x "$2"').environment
    programs = [KUBERNETES.cache_folder(environment) / program for program in KUBERNETES.packages]
    with ThreadPoolExecutor(2) as pool:
        building = pool.submit(build, environment, say=silent)
        gate.release_next()
        waiting = pool.submit(await_build, environment, KUBERNETES)
        while not waiting.done() and not all(program.is_file() for program in programs):
            gate.release_any()
        assert all(program.is_file() for program in programs)
        waiting.result()
        assert is_build_running(environment)
        while not building.done():
            gate.release_any()


def test_without_a_running_build_nothing_waits(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path)}
    assert not is_build_running(environment)
    await_build(environment)
