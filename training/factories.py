"""What a registry does with options, and with a name that is the import path of the user's own factory. Light.

Nothing here knows of models: each function is told which setting (`model.name`, `model.options`) its errors name.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar

from infra.spec.section import Section, validate
from training.config.schema import OptionValue
from training.errors import SettingsError

Options = TypeVar("Options", bound=Section)


def nearest(name: str, names: Sequence[str]) -> str:
    """Returns "did you mean X? " for the nearest of `names`, or nothing if none is near."""
    matches = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {matches[0]}? " if matches else ""


def parse_options(kind: type[Options], values: Mapping[str, OptionValue], *, setting: str, owner: str) -> Options:
    """Returns the options as an instance of `kind`.

    Args:
        kind: what `owner` takes.
        values: options as they stand in the settings.
        setting: key under which they stand, e.g. "model.options".
        owner: what they are options of, e.g. "model mlp".

    Raises:
        SettingsError: an option is unknown or its value is wrong.
    """
    return validate(kind, values, above=setting, remedy=describe_options(kind, owner=owner))


def describe_options(kind: type[Section], *, owner: str) -> str:
    """Returns the options of `owner` with their defaults and meanings, as one line."""
    described = [f"{name} (default {field.default}): {field.description}" for name, field in kind.model_fields.items()]
    return f"options of {owner}: {'; '.join(described) or 'none'}"


def is_own(path: str) -> bool:
    """Whether a name means a factory of the user's own."""
    return ":" in path


def check_importable(path: str, *, setting: str) -> None:
    """Checks that "package.module:factory" is well-formed and that the module is there.

    The module itself is not imported, the packages around it are.

    Raises:
        SettingsError: it is not.
    """
    module, _, function = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise SettingsError(
            f"{setting}={path} is no import path", remedy="write package.module:factory, a module and a function in it"
        )
    reason = f"there is no module {module}"
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError as error:
        is_there = False
        reason = str(error)
    if not is_there:
        raise SettingsError(
            f"{setting}={path} cannot be imported: {reason}",
            remedy="correct the path, run in the folder that the package lies in, or install the package",
        )


def resolve(path: str, *, setting: str) -> Callable[..., object]:
    """Imports "package.module:factory" and returns the factory. What goes wrong inside the module is raised as it is.

    Raises:
        SettingsError: there is no such module, it has no such attribute, or that cannot be called.
    """
    check_importable(path, setting=setting)
    module, _, function = path.partition(":")
    namespace = import_module(module)
    if not hasattr(namespace, function):
        callables = [name for name, value in vars(namespace).items() if callable(value)]
        raise SettingsError(
            f"{setting}={path}: module {module} has no {function}",
            remedy=nearest(function, callables) + "write package.module:factory",
        )
    factory: object = getattr(namespace, function)
    if not callable(factory):
        raise SettingsError(
            f"{setting}={path}: {function} is a {type(factory).__name__} and cannot be called",
            remedy="name a function or a class",
        )
    return factory


def call(
    factory: Callable[..., object], argument: object, options: Mapping[str, OptionValue], *, setting: str
) -> object:
    """Returns factory(argument, **options). What goes wrong inside the factory is raised as it is.

    Args:
        factory: a factory of the user's own.
        argument: what every factory of its kind takes first.
        options: options as they stand in the settings.
        setting: key under which they stand, e.g. "model.options".

    Raises:
        SettingsError: the factory does not take these options.
    """
    signature = inspect.signature(factory)
    try:
        signature.bind(argument, **options)
    except TypeError as error:
        raise SettingsError(
            f"{setting}={dict(options)}: the factory does not take them: {error}",
            remedy=f"its signature is {signature}; the first argument is given, the others are options",
        ) from None
    return factory(argument, **options)
