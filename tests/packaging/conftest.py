"""One wheel for all tests of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.wheel import build, copy_checkout


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all builds."""
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, uv_cache: Path) -> Path:
    """The wheel of this checkout."""
    return build(copy_checkout(tmp_path_factory.mktemp("checkout")), cache=uv_cache)
