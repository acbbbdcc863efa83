"""What can be said of a command without running it: its target, variables, options, settings and files exist."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from tests.docs.commands.found import ROOT
from tests.makefile import command as planned
from tests.reference import make_targets
from tests.reference.programs import BENCHMARKS, COMMAND_LINES, IMAGES, TOOLS, command_line
from training.config.schema import TrainingSettings

_PROGRAMS = {program.module: program for program in (*BENCHMARKS, *TOOLS, *IMAGES)}
_EXPORTED = {"PYTHON", "TORCH_INDEX", "TORCH_VERSION"}
"""Variables that every command of make passes on."""

_PLACEHOLDER = re.compile(r"…|^[A-Z]+$|^\w\.\w=|^(/data|/nfs|/shared|s3://|ds_config\.json)\b")
"""Settings and values that stand for others in the documents."""


def problems(text: str) -> Iterator[str]:
    """What is wrong with a command."""
    try:
        words = [word for word in shlex.split(text) if word != "…"]
    except ValueError as error:
        yield str(error)
        return
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    if words[:1] == ["timeout"] and "make" in words:
        words = words[words.index("make") :]
    program, *arguments = words or [""]
    if program == "make":
        yield from _of_make(arguments)
    elif program.endswith("python") and arguments[:1] == ["-m"]:
        yield from _options(arguments[1], arguments[2:])
    elif program.startswith((".ci/", ".venv/bin/")) and not (ROOT / program).is_file():
        yield f"no file {program}"


def check_setting(key: str, value: str | None) -> None:
    """Fail if the schema has no such setting, or the setting does not accept the value."""
    section: Any = TrainingSettings
    field = FieldInfo(annotation=TrainingSettings)
    for name in key.split("."):
        if get_origin(section) is dict:
            return
        assert isinstance(section, type), f"{key} is below a setting"
        assert issubclass(section, BaseModel), f"{key} is below a setting"
        assert name in section.model_fields, f"no setting {key}"
        field = section.model_fields[name]
        section = field.annotation
    if value is not None:
        accepted: TypeAdapter[object] = TypeAdapter(Annotated[section, field])
        accepted.validate_python(yaml.safe_load(value))


@cache
def _targets() -> dict[str, frozenset[str]]:
    """The variables that each target of make takes."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = make_targets.variables(text)
    return {one.name: frozenset(make_targets.used(one, known)) | _EXPORTED for one in make_targets.targets(text)}


def _of_make(arguments: Sequence[str]) -> Iterator[str]:
    variables = dict(word.partition("=")[::2] for word in arguments if "=" in word)
    targets = [word for word in arguments if "=" not in word]
    if unknown := [target for target in targets if target not in _targets()]:
        yield f"no target {', '.join(unknown)}"
        return
    taken = {name for target in targets for name in _targets()[target]}
    yield from (f"{' '.join(targets)} does not take {name}" for name in variables.keys() - taken)
    yield from _settings(variables)
    if "ARGS" in variables and variables.keys() <= taken:
        match planned(*arguments):
            case ["-m", module, *options] if "." in module or module in COMMAND_LINES:
                yield from _options(module, options)


def _settings(variables: dict[str, str]) -> Iterator[str]:
    for setting in shlex.split(variables.get("SET", "")):
        key, _, value = setting.partition("=")
        if not key.startswith("search.") and not _PLACEHOLDER.search(setting):
            try:
                check_setting(key, None if _PLACEHOLDER.search(value) else value)
            except (AssertionError, ValidationError) as error:
                yield f"{setting}: {error}"
    config = variables.get("CONFIG", "")
    if config and not config.endswith(".yaml") and not (ROOT / f"training/configs/{config}.yaml").is_file():
        yield f"no configuration {config}"


def _options(module: str, arguments: Sequence[str]) -> Iterator[str]:
    if module in COMMAND_LINES:
        if not arguments:
            return  # its default
        parser = command_line(module).parser()
    elif module in _PROGRAMS:
        parser = _PROGRAMS[module].make()
    else:
        try:
            is_found = find_spec(module) is not None
        except ModuleNotFoundError:
            is_found = False
        if not is_found:
            yield f"no module {module}"
        return
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            parser.parse_args(arguments)
        except SystemExit as ended:
            if ended.code:
                yield said.getvalue().strip().splitlines()[-1]
