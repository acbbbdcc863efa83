"""Models by name. Light: a model's own module, and with it torch, is imported only by `build`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from infra.spec.section import Section
from training import factories
from training.config.schema import ModelSettings
from training.errors import SettingsError
from training.models.options import MlpOptions, ResNetOptions, SimpleCnnOptions

if TYPE_CHECKING:
    from torch import nn

    from training.data.types import SampleSpec


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What is known of a model without building it.

    Attributes:
        name: value of `model.name`.
        factory: "module:function", called with a `SampleSpec` and an instance of `options`, returns an `nn.Module`.
        options: model of `model.options`.
        summary: one line for people.
    """

    name: str
    factory: str
    options: type[Section]
    summary: str


_SPECS = (
    ModelSpec(
        name="mlp",
        factory="training.models.mlp:mlp",
        options=MlpOptions,
        summary="Multi-layer perceptron, one hidden layer of 512 by default; samples of any shape.",
    ),
    ModelSpec(
        name="resnet101",
        factory="training.models.resnet:resnet101",
        options=ResNetOptions,
        summary="ResNet-101 v1.5, 45 million parameters; images.",
    ),
    ModelSpec(
        name="resnet18",
        factory="training.models.resnet:resnet18",
        options=ResNetOptions,
        summary="ResNet-18, 12 million parameters; images.",
    ),
    ModelSpec(
        name="resnet50",
        factory="training.models.resnet:resnet50",
        options=ResNetOptions,
        summary="ResNet-50 v1.5, 26 million parameters; images.",
    ),
    ModelSpec(
        name="simple_cnn",
        factory="training.models.simple_cnn:simple_cnn",
        options=SimpleCnnOptions,
        summary="Three convolutions with batch norm, 24 thousand parameters by default; images of any size.",
    ),
)


def names() -> tuple[str, ...]:
    """Returns the names of the models, sorted."""
    return tuple(spec.name for spec in _SPECS)


def find(name: str) -> ModelSpec:
    """Returns the model of this name.

    Raises:
        SettingsError: there is none; the message has the nearest name.
    """
    for spec in _SPECS:
        if spec.name == name:
            return spec
    raise SettingsError(
        f"model.name={name} is no model",
        remedy=f"{factories.nearest(name, names())}models: {', '.join(names())}; or package.module:factory of your own",
    )


def validate(settings: ModelSettings) -> None:
    """Checks the settings without importing a model. A factory of your own has to lie where it can be imported.

    Raises:
        SettingsError: the model or one of its options is unknown, an option's value is wrong, or the module of a
            factory of your own is not there.
    """
    if factories.is_own(settings.name):
        factories.check_importable(settings.name, setting="model.name")
    else:
        _options(find(settings.name), settings)


def build(settings: ModelSettings, spec: SampleSpec) -> nn.Module:
    """Builds the model on the default device; its weights are a function of torch's global generator.

    A factory of your own is called as factory(spec, **settings.options) and returns a `torch.nn.Module` from float
    (n, *spec.shape) to logits (n, spec.classes).

    Raises:
        SettingsError: as `validate`; or the model does not fit the samples, or a factory of your own cannot be called
            or returns something else.
    """
    if factories.is_own(settings.name):
        return _build_own(settings, spec)
    model = find(settings.name)
    module, _, function = model.factory.partition(":")
    built = getattr(import_module(module), function)(spec, _options(model, settings))
    return cast("nn.Module", built)


def _options(spec: ModelSpec, settings: ModelSettings) -> Section:
    return factories.parse_options(spec.options, settings.options, setting="model.options", owner=f"model {spec.name}")


def _build_own(settings: ModelSettings, spec: SampleSpec) -> nn.Module:
    from torch import nn  # noqa: PLC0415 - the command line imports this module

    factory = factories.resolve(settings.name, setting="model.name")
    built = factories.call(factory, spec, settings.options, setting="model.options")
    if not isinstance(built, nn.Module):
        raise SettingsError(
            f"model.name={settings.name} returned {type(built).__name__}", remedy="a factory returns a torch.nn.Module"
        )
    return built
