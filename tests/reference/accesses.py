"""Finds the environment variables that source files read or set, by their syntax trees.

An access is recognized by its mapping: `os.environ`, or whatever is called `environment`, `environ` or `variables`. Names may be constants
of other modules, and elements of constant collections. What a container gets is found in the manifests, as name and value.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

MAPPINGS = {"environment", "environ", "variables", "base"}
"""Names of mappings of environment variables, without leading underscores."""

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*|RAY_\w+")
_SETS = re.compile(r"(^|_)(env|environ|environment|variables|credentials|quiet|added_later)(_|$)", re.IGNORECASE)
"""Functions, parameters and constants with such names hold variables that a process gets."""
_READING_METHODS = {"get", "pop", "setdefault"}
_PYTHON_IN_TEXT = "os.environ"
_MAY_ACCESS = re.compile(r"environ|variable|[\"_]env\b|\bbase\b|\"value(From)?\":", re.IGNORECASE)


class Sources:
    """Python files, each parsed when it is needed: for its accesses, or for a constant that another file imports."""

    def __init__(self, root: Path) -> None:
        """Parse nothing yet; the packages are below `root`."""
        self._root = root
        self._files: dict[str, _File | None] = {}

    def accesses(self, name: str) -> set[str]:
        """The names of the environment variables that a file reads or sets."""
        text = (self._root / name).read_text(encoding="utf-8")
        if not _MAY_ACCESS.search(text):
            return set()
        file = self.module(_module(name))
        assert file is not None
        found = set(file.found())
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PYTHON_IN_TEXT in node.value:
                try:
                    program = ast.parse(node.value)
                except SyntaxError:  # prose
                    continue
                found |= set(_File(self, "", program).found())
        return found

    def module(self, module: str) -> _File | None:
        """A module below the root; None for any other."""
        if module not in self._files:
            path = module.replace(".", "/")
            paths = (self._root / f"{path}.py", self._root / path / "__init__.py")
            file = next((one for one in paths if module and one.is_file()), None)
            # CPython 3.11 raises SystemError if a garbage collection within ast.parse runs Python code that parses, too (gh-106905).
            gc.disable()
            try:
                parsed = None if file is None else _File(self, module, ast.parse(file.read_text(encoding="utf-8")))
            finally:
                gc.enable()
            self._files[module] = parsed
        return self._files[module]


class _File:
    """The accesses of one file."""

    def __init__(self, sources: Sources, module: str, tree: ast.Module) -> None:
        self._sources = sources
        self._module = module
        self.tree = tree
        self._imports = dict(_imports(tree))
        self._loops = _loops(tree)
        self._values = _assignments(tree)
        self._seen: set[str] = set()

    def found(self) -> Iterator[str]:
        """The names, some repeatedly."""
        for node in ast.walk(self.tree):
            for expression in self._keys(node):
                yield from (name for name in self._strings(expression) if _NAME.fullmatch(name))

    def _keys(self, node: ast.AST) -> Iterator[ast.expr]:
        """The expressions of names in a node that reads or sets variables."""
        match node:
            case ast.Subscript(value=mapping, slice=key) if _is_mapping(mapping):
                yield key
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[mapping]) if _is_mapping(mapping):
                yield key
            case ast.Call():
                yield from self._keys_of_call(node)
            case ast.Dict():
                yield from _keys_of_dict(node)
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                if _SETS.search(_identifier(target)) or _is_entry(target, "env"):
                    yield value
            case ast.FunctionDef(name=name) if _SETS.search(name):
                yield from (child for child in ast.walk(node) if isinstance(child, ast.Dict))
            case _:
                pass

    def _keys_of_call(self, call: ast.Call) -> Iterator[ast.expr]:
        function, first = call.func, call.args[:1]
        if isinstance(function, ast.Attribute) and _is_mapping(function.value):
            if function.attr in _READING_METHODS or function.attr == "update":
                yield from first
            yield from (ast.Constant(keyword.arg) for keyword in call.keywords if function.attr == "update")
        elif any(_is_mapping(argument) for argument in call.args):
            yield from (argument for argument in call.args if not _is_mapping(argument))
        if isinstance(function, ast.Attribute) and function.attr == "format_map" and any(map(_is_mapping, call.args)):
            yield from map(ast.Constant, re.findall(r"{(\w+)}", str(getattr(function.value, "value", ""))))
        if _SETS.search(_identifier(function)):
            yield from call.args
        for keyword in call.keywords:
            if keyword.arg == "variable" or (keyword.arg and _SETS.search(keyword.arg)):
                yield keyword.value

    def _strings(self, node: ast.expr) -> Iterator[str]:
        """The strings that an expression may be, or that a collection has as elements or keys."""
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name() | ast.Attribute():
                yield from self._strings_of_name(node)
            case _:
                for part in _parts(node):
                    yield from self._strings(part)

    def constant(self, name: str) -> Iterator[str]:
        """The strings of a constant of this module."""
        return self._strings(ast.Name(name))

    def _strings_of_name(self, node: ast.Name | ast.Attribute) -> Iterator[str]:
        place = ast.unparse(node)
        if place in self._seen:
            return
        self._seen.add(place)
        if isinstance(node, ast.Name) and node.id in self._loops:
            for collection in self._loops[node.id]:
                yield from self._strings(collection)
        if isinstance(node, ast.Attribute) and node.attr == "name" and isinstance(node.value, ast.Name):
            yield node.value.id  # MLflow's own list of its variables
        if isinstance(node, ast.Name):
            value, (module, _, name) = self._values.get(place), self._imports.get(place, "").partition(":")
        else:
            value, (module, name) = None, (self._imports.get(ast.unparse(node.value), "").replace(":", "."), node.attr)
        if value is not None:
            yield from self._strings(value)
        elif (other := self._sources.module(module)) is not None:
            yield from other.constant(name)
        self._seen.discard(place)


def _keys_of_dict(node: ast.Dict) -> Iterator[ast.expr]:
    """The names in a dict: of variables, or an entry of a container's `env`, `{"name": NAME, "value": …}`."""
    fields: dict[object, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None and _is_mapping(value):
            yield node
        elif isinstance(key, ast.Constant):
            fields[key.value] = value
        elif key is not None and _identifier(key).endswith("_VARIABLE"):
            yield key
    yield from (fields[key] for key in ("env", "environment") if key in fields)
    if "name" in fields and fields.keys() & {"value", "valueFrom"}:
        yield fields["name"]


def _parts(node: ast.expr) -> list[ast.expr]:
    """What an expression is made of: elements, keys, or both sides."""
    match node:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return elements
        case ast.Dict(keys=keys, values=values):
            return [value if key is None else key for key, value in zip(keys, values, strict=True)]
        case ast.IfExp(body=left, orelse=right) | ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return [left, right]
        case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[keys_of, *_]):
            return [keys_of]
        case ast.Call(func=ast.Attribute(value=mapping, attr="items" | "keys")):
            return [mapping]
        case _:
            return []


def _is_entry(node: ast.expr, key: str) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == key


def _is_mapping(node: ast.expr) -> bool:
    return _identifier(node).lstrip("_") in MAPPINGS


def _identifier(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What each imported name is: a module, or `module:name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                yield one.asname or one.name, f"{node.module}:{one.name}"
        elif isinstance(node, ast.Import):
            yield from ((one.asname or one.name, one.name) for one in node.names)


def _loops(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """What the variable of each loop iterates over; the first one of several."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            target = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
            found.setdefault(_identifier(target), []).append(node.iter)
    return found


def _assignments(tree: ast.Module) -> Mapping[str, ast.expr]:
    """The value of each name that is assigned, at the top level or in a function; the first one of several."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, value)
            case _:
                pass
    return found


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def in_shell(text: str) -> set[str]:
    """The names of the variables that a shell script reads without having set them, exports, or gives a single command."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assigned = set(re.findall(r"^\s*(?:if )?(?:local |readonly )*([A-Z][A-Z0-9_]*)=\S*$", code, re.MULTILINE))
    read = set(re.findall(r"(?<!\\)\$\{?#?([A-Z][A-Z0-9_]*)", code)) - assigned
    exported = set(re.findall(r"\bexport ([A-Z][A-Z0-9_]*)", code))
    commands = re.findall(r"^\s*((?:[A-Z][A-Z0-9_]*=\S*[ \t]+)+)[\w\"$./]", code, re.MULTILINE)
    given = {name for words in commands for name in re.findall(r"([A-Z][A-Z0-9_]*)=", words)}
    return (read | exported | given) - SHELL_VARIABLES


SHELL_VARIABLES = {"SECONDS", "BASH_SOURCE", "EXIT", "IFS"}
"""Bash's own."""


def in_dockerfile(text: str) -> set[str]:
    """The names that its ENV instructions set."""
    lines = re.findall(r"^ENV (.*)$", text.replace("\\\n", " "), re.MULTILINE)
    return {name for line in lines for name in re.findall(r"(?:^|\s)([A-Z][A-Z0-9_]*)=", line)}


def in_makefile(text: str) -> set[str]:
    """The names that make passes on to commands, or takes from them."""
    unexported = re.findall(r"^unexport (.*)$", text, re.MULTILINE)
    passed = re.findall(r"^exported := (.*)$", text, re.MULTILINE)
    given = re.findall(r"&& ([A-Z]+)=", text)
    return {*" ".join(passed).split(), *given, *(line for line in unexported if line.isupper())}
