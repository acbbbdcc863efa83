"""Objectives by name. Imports no torch: the module of an objective is imported only by `build_objective`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from observability.objective_metrics import Metric
from training.config.schema import CheckpointSettings, ObjectiveSettings
from training.data.options import TargetKind
from training.errors import SettingsError
from training.factories import FactorySpec, Registry, is_import_path, suggest
from training.objectives import metrics
from training.objectives.options import (
    ClassificationOptions,
    LanguageModellingOptions,
    MultiLabelOptions,
    RegressionOptions,
)

if TYPE_CHECKING:
    from training.data.types import SampleSpec
    from training.objectives.objective import Objective

BEST_PREFIX = "validation_"
"""Prefix of the metrics that may rank checkpoints: those of the validation split."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec(FactorySpec):
    """An objective; its factory takes a `SampleSpec` and its options, and returns an `Objective` with these `metrics`.

    Attributes:
        metrics: what it reports.
        ranked_by: name of the metric that ranks its checkpoints.
        targets: what it is computed from; None: tokens.
    """

    metrics: tuple[Metric, ...]
    ranked_by: str = "loss"
    targets: TargetKind | None = None


OBJECTIVES = Registry(
    kind="objective",
    setting="objective.name",
    options_setting="objective.options",
    returns="training.objectives.objective:Objective",
    specs=(
        ObjectiveSpec(
            name="classification",
            factory="training.objectives.classification:classification",
            options=ClassificationOptions,
            metrics=metrics.CLASSIFICATION,
            ranked_by="accuracy",
            targets="classes",
        ),
        ObjectiveSpec(
            name="language_modelling",
            factory="training.objectives.language_modelling:language_modelling",
            options=LanguageModellingOptions,
            metrics=metrics.LANGUAGE_MODELLING,
            ranked_by="perplexity",
        ),
        ObjectiveSpec(
            name="multi_label",
            factory="training.objectives.multi_label:multi_label",
            options=MultiLabelOptions,
            metrics=metrics.MULTI_LABEL,
            ranked_by="f1",
            targets="values",
        ),
        ObjectiveSpec(
            name="regression",
            factory="training.objectives.regression:regression",
            options=RegressionOptions,
            metrics=metrics.REGRESSION,
            targets="values",
        ),
    ),
)


def targets_of(settings: ObjectiveSettings) -> TargetKind | None:
    """What the targets of the objective are; None for tokens, and for an objective of your own."""
    return None if is_import_path(settings.name) else OBJECTIVES.find(settings.name).targets


def validate(settings: ObjectiveSettings, checkpoint: CheckpointSettings) -> None:
    """Validates the settings without importing an objective.

    Raises:
        SettingsError: the objective or an option is unknown, an option has an invalid value, the module of a factory of
            your own does not exist, or a built-in objective does not report the metric that ranks checkpoints.
    """
    OBJECTIVES.validate(settings.name, settings.options)
    if not is_import_path(settings.name):
        check_best_metric(checkpoint.best_metric, OBJECTIVES.find(settings.name).metrics, objective=settings.name)


def build_objective(settings: ObjectiveSettings, spec: SampleSpec) -> Objective:
    """Builds the objective for the samples of a dataset.

    A factory of your own is called as factory(spec, **settings.options); a subclass of `Objective` is a factory.

    Raises:
        SettingsError: as `validate`; or a factory of your own does not accept the options, returns another type, or has weights.
    """
    from torch import nn  # noqa: PLC0415 - commands that only read settings import no torch

    objective: object = OBJECTIVES.build(settings.name, spec, settings.options)
    modules = [one for one in (objective, *getattr(objective, "__dict__", {}).values()) if isinstance(one, nn.Module)]
    if weights := [name for one in modules for name, value in one.named_parameters() if value.requires_grad]:
        raise SettingsError(
            f"objective.name={settings.name} has the weight {weights[0]}, which nothing would train or save",
            remedy="put it into the model; weights that are not trained, as a teacher's: requires_grad_(False)",
        )
    return cast("Objective", objective)


def check_best_metric(best_metric: str | None, reported: tuple[Metric, ...], *, objective: str) -> None:
    """Checks that an objective reports the metric that ranks checkpoints.

    Raises:
        SettingsError: it does not; names those that it reports.
    """
    names = [f"{BEST_PREFIX}{metric.name}" for metric in reported]
    if best_metric is not None and best_metric not in names:
        raise SettingsError(
            f"checkpoint.best_metric={best_metric}: objective {objective} reports no such metric",
            remedy=f"{suggest(best_metric, names)}its metrics: {', '.join(names)}",
        )


def ranking_metric(objective: Objective, settings: CheckpointSettings, *, name: str) -> Metric:
    """The metric of the validation split that ranks checkpoints.

    Raises:
        SettingsError: the objective does not report it.
    """
    check_best_metric(settings.best_metric, objective.metrics, objective=name)
    wanted = settings.best_metric.removeprefix(BEST_PREFIX) if settings.best_metric else objective.ranked_by
    return next(metric for metric in objective.metrics if metric.name == wanted)
