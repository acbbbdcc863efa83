"""Refuses to continue a search under other settings: its trials would not be comparable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.spec.yaml_text import inline
from training.config.schema import TrainingSettings
from training.errors import SettingsError
from tune.history import SearchHistory
from tune.settings import SearchSettings

_FREE: Final = (
    "search.trials",
    "search.stop",
    "search.concurrency",
    "search.keep_checkpoints",
    "search.directory",
    "run.name",
    "run.directory",
    "scale.address",
    "scale.start_timeout",
    "scale.collective_timeout",
    "scale.max_restarts",
    "recovery",
    "tracking",
    "metrics",
    "profile",
    "data.cache",
    "data.reader",
    "data.loader_workers",
    "data.prefetch",
    "data.pin_memory",
)
"""Settings that may change when a search is continued: how long it goes on, and where and how it runs."""

_ABSENT = "nothing"


def refuse_changes(history: SearchHistory, search: SearchSettings, shared: TrainingSettings) -> None:
    """Refuse settings that differ from those of the search so far.

    Args:
        history: what earlier drivers have recorded; empty for a new search.
        search: the `search` section.
        shared: the settings that its trials share.

    Raises:
        SettingsError: lists each setting with its old and new value.
    """
    if not history.started:
        return
    earlier = history.started[-1]
    before = dict(_flat({"search": earlier.settings, **earlier.shared}))
    now = dict(_flat({"search": search.model_dump(mode="json"), **shared.model_dump(mode="json")}))
    changed = [
        f"{key}: {_text(before, key)} so far, {_text(now, key)} now"
        for key in sorted(before.keys() | now.keys())
        if before.get(key, _ABSENT) != now.get(key, _ABSENT) and not _is_free(key)
    ]
    if changed:
        raise SettingsError(
            "\n  ".join([f"search {earlier.search} was begun with other settings", *changed]),
            remedy="set them back to continue it, or give the new search another NAME",
        )


def _is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in _FREE)


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting under its dotted key; an axis is one setting."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and above != "search.space.":
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _text(settings: Mapping[str, Any], key: str) -> str:
    if key not in settings:
        return _ABSENT
    value = settings[key]
    if isinstance(value, Mapping):  # an axis: only what was given
        value = {name: part for name, part in value.items() if part not in (None, False, {})}
    return inline(value)
