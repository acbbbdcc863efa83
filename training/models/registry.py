"""Models by name. Imports no torch: the module of a model is imported only by `build_model`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from training.config.schema import ModelSettings
from training.factories import FactorySpec, Registry
from training.models.options import MlpOptions, ResNetOptions, RnnOptions, SimpleCnnOptions, TransformerOptions

if TYPE_CHECKING:
    from torch import nn

    from training.data.types import SampleSpec

MODELS = Registry(
    kind="model",
    setting="model.name",
    options_setting="model.options",
    returns="torch.nn:Module",
    specs=(
        FactorySpec(name="mlp", factory="training.models.mlp:mlp", options=MlpOptions),
        FactorySpec(name="resnet101", factory="training.models.resnet:resnet101", options=ResNetOptions),
        FactorySpec(name="resnet18", factory="training.models.resnet:resnet18", options=ResNetOptions),
        FactorySpec(name="resnet50", factory="training.models.resnet:resnet50", options=ResNetOptions),
        FactorySpec(name="rnn", factory="training.models.rnn:rnn", options=RnnOptions),
        FactorySpec(name="simple_cnn", factory="training.models.simple_cnn:simple_cnn", options=SimpleCnnOptions),
        FactorySpec(name="transformer", factory="training.models.transformer:transformer", options=TransformerOptions),
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


def build_model(settings: ModelSettings, spec: SampleSpec) -> nn.Module:
    """Builds the model on the default device, with weights drawn from torch's global generator.

    A factory of your own is called as factory(spec, **settings.options) and must return a `torch.nn.Module` from inputs
    (n, *spec.shape), float32 or int64 tokens, to float (n, *spec.output_shape).

    Raises:
        SettingsError: as `validate`; or the model does not fit the samples, or a factory of your own does not accept
            the options or returns another type.
    """
    return cast("nn.Module", MODELS.build(settings.name, spec, settings.options))
