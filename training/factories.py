"""Registries of factories by name, and factories of your own by import path. Imports no torch.

Independent of models and datasets: a registry is given the settings (`model.name`, `model.options`) that its errors name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from infra.spec.section import Section, did_you_mean, validate
from training.config.schema import OptionValue
from training.errors import SettingsError
from training.own_factory import check_options, check_source, locate
from training.user_code import is_user_code, user_traceback

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, kw_only=True)
class FactorySpec:
    """A named factory, whose module is imported only to call it.

    Attributes:
        name: name in the settings.
        factory: "package.module:function", called with one argument and an instance of `options`.
        options: model of the factory's options.
    """

    name: str
    factory: str
    options: type[Section]


Spec = TypeVar("Spec", bound=FactorySpec)


@dataclass(frozen=True, kw_only=True)
class Registry(Generic[Spec]):
    """Factories of one kind, by name.

    Attributes:
        kind: what the factories make, e.g. "model".
        setting: key of the name, e.g. "model.name".
        options_setting: key of the options, e.g. "model.options".
        returns: "package.module:Class" of what the factories return.
        specs: the factories, sorted by name.
    """

    kind: str
    setting: str
    options_setting: str
    returns: str
    specs: tuple[Spec, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Registered names, sorted."""
        return tuple(spec.name for spec in self.specs)

    def find(self, name: str) -> Spec:
        """Returns the spec with this name.

        Raises:
            SettingsError: the name is unknown; the remedy suggests a close match.
        """
        for spec in self.specs:
            if spec.name == name:
                return spec
        raise SettingsError(
            f"{self.setting}={name}: unknown {self.kind}",
            remedy=f"{suggest(name, self.names)}{self.kind}s: {', '.join(self.names)}; "
            "or package.module:factory for a factory of your own",
        )

    def validate(self, name: str, options: Mapping[str, OptionValue]) -> None:
        """Validates name and options without importing the factory's module.

        Raises:
            SettingsError: the name or an option is unknown, an option has an invalid value, or a factory of your own does
                not exist or not take its options, as far as its source tells.
        """
        if is_import_path(name):
            check_importable(name, setting=self.setting)
            check_source(name, options, setting=self.setting, options_setting=self.options_setting)
        else:
            self._parse_options(self.find(name), options)

    def build(self, name: str, argument: object, options: Mapping[str, OptionValue]) -> object:
        """Calls a factory: a registered one as factory(argument, parsed options), your own as factory(argument, **options).

        Raises:
            SettingsError: as `validate`; or a factory of your own does not accept the options or returns another type.
            Exception: any error raised by the factory or by the import of its module.
        """
        if is_import_path(name):
            return self._build_own(name, argument, options)
        spec = self.find(name)
        parsed = self._parse_options(spec, options)
        return _import_object(spec.factory)(argument, parsed)

    def _parse_options(self, spec: Spec, options: Mapping[str, OptionValue]) -> Section:
        return parse_options(spec.options, options, setting=self.options_setting, owner=f"{self.kind} {spec.name}")

    def _build_own(self, path: str, argument: object, options: Mapping[str, OptionValue]) -> object:
        factory = import_factory(path, setting=self.setting)
        check_options(inspect.signature(factory), options, options_setting=self.options_setting)
        built = factory(argument, **options)
        if not isinstance(built, _import_object(self.returns)):
            raise SettingsError(
                f"{self.setting}={path} returned {type(built).__name__}",
                remedy=f"the factory must return a {self.returns.replace(':', '.')}",
            )
        return built


def suggest(name: str, names: Sequence[str]) -> str:
    """Returns "did you mean X? " for the closest of `names`, or an empty string if none is close."""
    question = did_you_mean(name, names)
    return f"{question} " if question else ""


def parse_options(kind: type[Options], values: Mapping[str, OptionValue], *, setting: str, owner: str) -> Options:
    """Returns the options as an instance of `kind`.

    Args:
        kind: model of the options of `owner`.
        values: options from the settings.
        setting: key of the options, e.g. "model.options".
        owner: what the options belong to, e.g. "model mlp".

    Raises:
        SettingsError: an option is unknown or its value is invalid.
    """
    return validate(kind, values, above=setting, remedy=describe_options(kind, owner=owner))


def describe_options(kind: type[Section], *, owner: str) -> str:
    """Returns the options of `owner` with defaults and descriptions, as one line."""
    described = [
        f"{name} ({'required' if field.is_required() else f'default {field.get_default(call_default_factory=True)}'}): "
        f"{field.description}"
        for name, field in kind.model_fields.items()
    ]
    return f"options of {owner}: {'; '.join(described) or 'none'}"


def is_import_path(name: str) -> bool:
    """Whether a name is an import path."""
    return ":" in name


def check_importable(path: str, *, setting: str) -> None:
    """Checks that "package.module:factory" is well-formed and that the module exists.

    Imports nothing; of a user's own modules it checks the syntax.

    Raises:
        SettingsError: the path is malformed, the module does not exist, or the syntax is wrong.
    """
    module, _, function = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise SettingsError(
            f"{setting}={path} is not an import path",
            remedy="write package.module:factory, a module and a function in it",
        )
    found = locate(module)
    parts = module.split(".")
    if len(found) < len(parts):
        missing = ".".join(parts[: len(found) + 1])
        raise SettingsError(
            f"{setting}={path} cannot be imported: no module named '{missing}'",
            remedy="correct the path, name the folder that contains the package with CODE=… (--code), or install the package",
        )
    for origin in (spec.origin for spec in found):
        if origin is not None and origin.endswith(".py") and is_user_code(origin):
            try:
                compile(Path(origin).read_bytes(), origin, "exec")
            except (SyntaxError, ValueError) as error:
                raise _failed_import(path, error, setting=setting) from error


def _failed_import(path: str, error: BaseException, *, setting: str) -> SettingsError:
    """The error of a user's module that Python cannot compile, with its own traceback first."""
    return SettingsError(
        f"{user_traceback(error)}{setting}={path} cannot be imported: {type(error).__name__}: {error}",
        remedy="correct the module, or install what it imports",
    )


def import_factory(path: str, *, setting: str) -> Callable[..., object]:
    """Imports "package.module:factory" and returns the factory.

    Raises:
        SettingsError: the module does not exist, has no such attribute, or the attribute is not callable.
        Exception: any error raised by the import of the module.
    """
    check_importable(path, setting=setting)
    module, _, function = path.partition(":")
    namespace = import_module(module)
    if not hasattr(namespace, function):
        callables = [name for name, value in vars(namespace).items() if callable(value)]
        raise SettingsError(
            f"{setting}={path}: module {module} has no attribute '{function}'",
            remedy=suggest(function, callables) + "write package.module:factory",
        )
    factory: object = getattr(namespace, function)
    if not callable(factory):
        raise SettingsError(
            f"{setting}={path}: {function} is not callable, it is of type {type(factory).__name__}",
            remedy="name a function or a class",
        )
    return factory


def _import_object(path: str) -> Any:  # noqa: ANN401 - a class or a function of this project
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
