"""Models by name. Imports no torch: the module of a model is imported only by `build_model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from training.config.schema import ModelSettings, StrategySettings
from training.errors import SettingsError
from training.factories import FactorySpec, Registry, is_import_path, parse_options
from training.models.options import MlpOptions, ResNetOptions, RnnOptions, SimpleCnnOptions, TransformerOptions

if TYPE_CHECKING:
    from torch import nn

    from training.data.types import SampleSpec


@dataclass(frozen=True, kw_only=True)
class ModelSpec(FactorySpec):
    """A model.

    Attributes:
        parts: number of its parts with parameters (`training.models.parts`), from its options; None if a pipeline cannot divide it.
    """

    parts: Callable[[Any], int] | None = None


def _resnet(name: str, *, blocks: int) -> ModelSpec:
    return ModelSpec(
        name=name, factory=f"training.models.resnet:{name}", options=ResNetOptions, parts=lambda _: blocks + 2
    )


MODELS = Registry(
    kind="model",
    setting="model.name",
    options_setting="model.options",
    returns="torch.nn:Module",
    specs=(
        ModelSpec(
            name="mlp",
            factory="training.models.mlp:mlp",
            options=MlpOptions,
            parts=lambda options: len(options.hidden) + 1,
        ),
        _resnet("resnet101", blocks=33),
        _resnet("resnet18", blocks=8),
        _resnet("resnet50", blocks=16),
        ModelSpec(name="rnn", factory="training.models.rnn:rnn", options=RnnOptions),
        ModelSpec(
            name="simple_cnn",
            factory="training.models.simple_cnn:simple_cnn",
            options=SimpleCnnOptions,
            parts=lambda _: 4,
        ),
        ModelSpec(
            name="transformer",
            factory="training.models.transformer:transformer",
            options=TransformerOptions,
            parts=lambda options: options.layers + 2,
        ),
    ),
)
"""The models. A factory takes a `SampleSpec` and its options, and returns an `nn.Module`."""


def validate(settings: ModelSettings) -> None:
    """Validates the settings without importing a model.

    Raises:
        SettingsError: the model or an option is unknown, an option has an invalid value, or the module of a factory of
            your own does not exist.
    """
    MODELS.validate(settings.name, settings.options)


def check_stages(model: ModelSettings, strategy: StrategySettings) -> None:
    """Check that a pipeline can divide the model into its stages; one of your own is checked when it is built.

    Raises:
        SettingsError: it cannot; names the models that have parts, or the most stages.
    """
    if strategy.name != "pipeline" or is_import_path(model.name):
        return
    spec = MODELS.find(model.name)
    if spec.parts is None:
        divisible = ", ".join(one.name for one in MODELS.specs if one.parts is not None)
        raise SettingsError(
            f"strategy.name=pipeline: model.name={model.name} has no parts to divide into stages",
            remedy=f"use one of {divisible}, or a model of your own with parts; or set strategy.name=fsdp2",
        )
    parts = spec.parts(parse_options(spec.options, model.options, setting="model.options", owner=f"model {spec.name}"))
    stages = strategy.stages * strategy.stages_per_rank
    if stages > parts:
        product = f" x strategy.stages_per_rank={strategy.stages_per_rank}" if strategy.stages_per_rank > 1 else ""
        raise SettingsError(
            f"strategy.stages={strategy.stages}{product} is more than the {parts} parts of model.name={model.name}",
            remedy=f"use at most {parts} stages in all",
        )


def build_model(settings: ModelSettings, spec: SampleSpec) -> nn.Module:
    """Builds the model on the default device, with weights drawn from torch's global generator.

    A factory of your own is called as factory(spec, **settings.options) and must return a `torch.nn.Module` from inputs
    (n, *spec.shape), float32 or int64 tokens, to float (n, *spec.output_shape).

    Raises:
        SettingsError: as `validate`; or the model does not fit the samples, or a factory of your own does not accept
            the options or returns another type.
    """
    return cast("nn.Module", MODELS.build(settings.name, spec, settings.options))
