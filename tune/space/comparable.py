"""Refuses axes whose trials could not be compared: measured on different samples, by different losses, or after different schedules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from training.config.schema import TrainingSettings
from training.data.options import SyntheticOptions, TextOptions
from training.errors import SettingsError
from training.factories import is_import_path
from tune.space.space import Space

_SAMPLES = "the trials would be compared on different validation samples"
_ALWAYS: Final[Mapping[str, str]] = {
    "data.dataset": _SAMPLES,
    "data.path": _SAMPLES,
    "data.cache": "it is where all trials read their samples",
    "data.validation_fraction": _SAMPLES,
    "loop.validation": "trials are compared after each evaluation, which their ranks have to make",
    "loop.evaluate_every": "a trial that is evaluated more often has more epochs to choose its best one from",
}
_SAMPLES_OF: Final[Mapping[str, Collection[str]]] = {
    "synthetic": SyntheticOptions.model_fields,
    "parquet": ("kind", "target", "vocabulary"),
    "python_reference": TextOptions.model_fields,
    "tar_shards": ("target",),
    "text_files": TextOptions.model_fields,
}
"""Options of our datasets that the validation samples depend on; those of `digits`, `image_folder` and others leave which they are."""

_LENGTH: Final = ("loop.epochs", "loop.max_steps")
_LOSS: Final = "validation_loss"
_OPTIONS_OF_A_LOSS: Final = ("class_weights", "positive_weights", "loss", "delta")
"""Options of our objectives that the validation loss depends on; smoothing and mixup act in training only."""


def check_comparable(space: Space, shared: TrainingSettings, *, objectives: Collection[str], scheduler: str) -> None:
    """Refuse an axis whose trials the search could not compare. Datasets and objectives of the user's own are theirs to judge.

    Args:
        space: the axes; only those that vary matter.
        shared: the settings that trials share.
        objectives: metrics to optimize.
        scheduler: its name.

    Raises:
        SettingsError: names the axis, the reason and what can be done; or the trials would be evaluated after they go on.
    """
    if shared.loop.validation == "async":
        raise SettingsError(
            "loop.validation=async: a search decides after each evaluation whether a trial goes on, and such a trial would be further "
            "than the checkpoint that was evaluated",
            remedy="set loop.validation=inline",
        )
    samples = _SAMPLES_OF.get(shared.data.dataset, ())
    never = {**_ALWAYS, **{f"data.options.{name}": _SAMPLES for name in samples}}
    for key in space.axes:
        if key in space.fixed:
            continue
        where, for_all = f"search.space.{key}", f"set it for all trials: {key}=…"
        if key in never:
            raise SettingsError(f"{where}: cannot vary: {never[key]}", remedy=for_all)
        if key in _LENGTH and scheduler != "none":
            raise SettingsError(
                f"{where}: cannot vary: {scheduler} compares trials after equal epochs, when those of different lengths are at "
                "different points of their learning rate's schedule",
                remedy=f"{for_all}, or search.scheduler.name=none",
            )
        if _LOSS in objectives and _is_of_the_loss(key, shared):
            raise SettingsError(
                f"{where}: changes what {_LOSS} means, by which the trials are compared",
                remedy=f"name another metric in search.objectives, or {for_all}",
            )


def _is_of_the_loss(key: str, shared: TrainingSettings) -> bool:
    options = () if is_import_path(shared.objective.name) else _OPTIONS_OF_A_LOSS
    return key == "objective.name" or key in {f"objective.options.{name}" for name in options}
