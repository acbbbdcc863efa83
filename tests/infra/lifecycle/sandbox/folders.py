"""The folder of a sandbox that the commands start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.lifecycle.sandbox import detached
from tests.engines.kubernetes import engine_environment

ROOT = Path(__file__).resolve().parents[4]


@contextmanager
def sandbox_folder(place: Path) -> Iterator[Path]:
    """The folder of a sandbox that is started from an empty directory; stops what is left running."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine_environment().items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.chdir(place)
        found = place / ".local" / "sandbox"
        try:
            yield found
        finally:
            detached.stop(found)
