"""Search sections for tests."""

from __future__ import annotations

from typing import Any

from tune.settings import SearchSettings
from tune.space.space import Space

RATE = {"optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]}}


def search_settings(
    scheduler: dict[str, Any] | None = None, space: dict[str, Any] | None = None, **more: object
) -> SearchSettings:
    """A search over the learning rate, unless `space` has other axes."""
    return SearchSettings.model_validate(
        {"scheduler": scheduler or {"name": "none"}, "space": RATE if space is None else space, **more}
    )


def space_of(axes: dict[str, Any]) -> Space:
    """The space of the file's form of the axes."""
    return Space.of(search_settings(space=axes).space)
