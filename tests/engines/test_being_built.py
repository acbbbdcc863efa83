"""Waiting for a build of Kubernetes, with a compiler that takes as long as it is told to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.build import build
from infra.lifecycle.sandbox.programs import find_programs
from infra.spec.errors import RefusedError, StackError
from tests.engines.being_built import await_build, is_being_built
from tests.infra.lifecycle.sandbox.test_build import Compiler, silent


class Gate:
    """A pipe at which a compiler stands until somebody opens its other end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.wait = f"cat {path}"
        """What the compiler does to stand there."""

    def let_one_through(self) -> None:
        """Wait for a compiler, and open."""
        self._path.open("wb").close()

    def let_through_who_is_there(self) -> None:
        """Open, if there is a compiler."""
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


def test_who_waits_goes_on_when_everything_is_built(tmp_path: Path, gate: Gate) -> None:
    environment = Compiler(tmp_path / "bin", does=f'{gate.wait}; echo program >"$2"; chmod +x "$2"').environment
    with ThreadPoolExecutor(2) as pool:
        building = pool.submit(build, environment, say=silent)
        gate.let_one_through()
        assert is_being_built(environment)
        waiting = pool.submit(is_built_after_waiting, environment)
        while not building.done():
            gate.let_through_who_is_there()
        assert waiting.result()
    assert not is_being_built(environment)


def test_a_build_that_fails_is_not_waited_for_any_longer(tmp_path: Path, gate: Gate) -> None:
    environment = Compiler(tmp_path / "bin", does=f"{gate.wait}; exit 1").environment
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build, environment, say=silent)
        gate.let_one_through()
        assert not is_built_after_waiting(environment)
        with pytest.raises(StackError):
            building.result()


def test_where_nothing_is_built_nothing_is_waited_for(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path)}
    assert not is_being_built(environment)
    await_build(environment)
