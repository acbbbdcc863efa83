"""Checks a factory of the user's own by its source, without importing its module, which takes seconds or a GPU.

What the source does not tell, such as the signature of a decorated function, is found when the ranks call the factory.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from infra.spec.section import did_you_mean
from training.errors import SettingsError

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_WRITES_NAMES = frozenset({"globals", "exec", "__getattr__"})
"""A module that mentions one of these may have any name."""


class _Text:
    """Source text of a default or an annotation, which a signature prints as it is."""

    def __init__(self, node: ast.expr) -> None:
        self._text = ast.unparse(node)

    def __repr__(self) -> str:
        return self._text


def locate(module: str) -> tuple[ModuleSpec, ...]:
    """The packages above a module and the module itself, as far as they exist; imports none of them.

    Their code may need torch or other packages, which a machine that only submits jobs does not have.
    """
    found: list[ModuleSpec] = []
    folders: list[str] = []
    for depth, part in enumerate(module.split(".")):
        spec = PathFinder.find_spec(f"{found[-1].name}.{part}", folders) if depth else find_spec(part)
        if spec is None:
            break
        found.append(spec)
        if spec.origin is None and depth:  # a namespace package, whose own list of folders imports its parents
            folders = [str(Path(folder, part)) for folder in folders if Path(folder, part).is_dir()]
        else:
            folders = list(spec.submodule_search_locations or ())
    return tuple(found)


def check_source(path: str, options: Mapping[str, object], *, setting: str, options_setting: str) -> None:
    """Checks that a module has a factory, and that the factory takes its options.

    Args:
        path: "package.module:factory" of a module that exists.
        options: its options.
        setting: key of the path, e.g. "model.name".
        options_setting: key of the options.

    Raises:
        SettingsError: the module does not have the factory, or the factory does not take the options.
    """
    module, _, name = path.partition(":")
    spec = locate(module)[-1]
    if spec.origin is None or not spec.origin.endswith(".py"):
        return
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except (SyntaxError, ValueError):  # the import reports it, with its own traceback
        return
    bound = dict(_bound(tree))
    if name not in bound:
        if "*" in bound or _WRITES_NAMES & {
            *bound,
            *(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)),
        }:
            return
        meant = did_you_mean(name, list(bound))
        raise SettingsError(
            f"{setting}={path}: module {module} has no attribute '{name}'",
            remedy=f"{meant} write package.module:factory".lstrip(),
        )
    signature = _signature(bound[name])
    if signature is not None:
        check_options(signature, options, options_setting=options_setting)


def check_options(signature: inspect.Signature, options: Mapping[str, object], *, options_setting: str) -> None:
    """Checks that a factory can be called with one argument and these options.

    Raises:
        SettingsError: it cannot; shows the signature.
    """
    try:
        signature.bind(None, **options)
    except TypeError as error:
        raise SettingsError(
            f"{options_setting}={dict(options)}: the factory does not accept them: {error}",
            remedy=f"its signature is {signature}; the first argument is given, the others are options",
        ) from None


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a module binds, with what binds them; the last one counts. `*` stands for names that are not known."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name, child
        elif isinstance(child, ast.alias):
            yield child.asname or child.name.split(".")[0], child
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id, child
        if not isinstance(child, _Scope):
            yield from _bound(child)


def _signature(node: ast.AST) -> inspect.Signature | None:
    """How a function or a class with an `__init__` of its own is called; None if the source does not tell."""
    if isinstance(node, ast.ClassDef):
        if node.decorator_list or node.keywords:
            return None
        methods = dict(_bound(node))
        if "__new__" in methods or not isinstance(methods.get("__init__"), _Function):
            return None
        signature = _signature(methods["__init__"])
        if signature is None or not signature.parameters:
            return None
        return signature.replace(parameters=list(signature.parameters.values())[1:])
    if not isinstance(node, _Function) or node.decorator_list:
        return None
    return inspect.Signature(list(_parameters(node.args)))


def _parameters(arguments: ast.arguments) -> Iterator[inspect.Parameter]:
    positional: list[tuple[ast.arg, inspect._ParameterKind]] = [
        (one, inspect.Parameter.POSITIONAL_ONLY) for one in arguments.posonlyargs
    ]
    positional += [(one, inspect.Parameter.POSITIONAL_OR_KEYWORD) for one in arguments.args]
    padding = [None] * (len(positional) - len(arguments.defaults))
    for (one, kind), default in zip(positional, [*padding, *arguments.defaults], strict=True):
        yield _parameter(one, kind, default)
    if arguments.vararg:
        yield _parameter(arguments.vararg, inspect.Parameter.VAR_POSITIONAL, None)
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, inspect.Parameter.KEYWORD_ONLY, default)
    if arguments.kwarg:
        yield _parameter(arguments.kwarg, inspect.Parameter.VAR_KEYWORD, None)


def _parameter(one: ast.arg, kind: inspect._ParameterKind, default: ast.expr | None) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        one.arg,
        kind,
        default=empty if default is None else _Text(default),
        annotation=empty if one.annotation is None else _Text(one.annotation),
    )
