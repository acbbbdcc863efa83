"""One wheel for all tests of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.checkouts import copy_working_tree
from tests.packaging.wheel import build


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all builds."""
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, uv_cache: Path) -> Path:
    """The wheel of this checkout."""
    checkout = tmp_path_factory.mktemp("checkout")
    copy_working_tree(checkout)
    return build(checkout, cache=uv_cache)
