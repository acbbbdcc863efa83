"""What every model of the stack's plain data shares: strictness, reading YAML, and messages one can act on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from infra.spec.errors import SettingsError


class Section(BaseModel):
    """A part of a file: frozen, unknown keys refused, defaults checked too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


M = TypeVar("M", bound=Section)

_QUOTE = "'"


class Violation(NamedTuple):
    """One rule that one value breaks.

    Attributes:
        key: dotted path of the setting, as it is written in the file.
        value: the value that is wrong; None where no single value is.
        rule: what holds for every valid value.
        remedy: what to write instead; empty where the rule says it all.
    """

    key: str
    value: object
    rule: str
    remedy: str = ""

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {self.value!s}"
        hint = f"\n    remedy: {self.remedy}" if self.remedy else ""
        return f"{self.key}{shown}: {self.rule}{hint}"


def refuse(file: str, violations: Sequence[Violation]) -> None:
    """Raise one SettingsError that lists every violation, or return where there is none."""
    if violations:
        raise _refusal(file, violations)


def _refusal(file: str, violations: Sequence[Violation]) -> SettingsError:
    lines = "".join(f"\n  {violation}" for violation in violations)
    return SettingsError(f"{file}: {len(violations)} wrong setting{'s' * (len(violations) > 1)}{lines}")


def nearest(name: str, valid: Iterable[str]) -> str:
    """Say which valid name is meant, or which there are: the second half of a message about an unknown name."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(names)}"


def read_document(path: Path) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping.

    Raises:
        SettingsError: no such file, not YAML, or another top level.
    """
    if not path.is_file():
        raise SettingsError(f"{path}: no such file")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: the top level must be a mapping, got {type(document).__name__}")
    return document


def build(model: type[M], data: Mapping[str, Any], *, file: str) -> M:
    """Validate `data` as `model`.

    Raises:
        SettingsError: names file, key, value, rule and nearest valid name of everything that is wrong.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise _refusal(file, [_violation(model, data, detail) for detail in details]) from error


def _violation(model: type[BaseModel], data: Mapping[str, Any], detail: ErrorDetails) -> Violation:
    """Put one of pydantic's errors into our words."""
    path = list(_written_path(data, detail))
    key, value, remedy = ".".join(map(str, path)) or "(top level)", detail["input"], ""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            value, rule = None, "no such setting"
            remedy = nearest(str(path[-1]), _fields_at(model, path[:-1]))
        case "missing":
            value, rule = None, f"is required: {_fields_at(model, path[:-1])[str(path[-1])].description}"
        case "literal_error" | "enum":
            rule, remedy = _one_of(value, context["expected"])
        case "union_tag_invalid":
            key, value = f"{key}.{context['discriminator'].strip(_QUOTE)}", context["tag"]
            rule, remedy = _one_of(value, context["expected_tags"])
        case "model_type" | "model_attributes_type" | "dict_type":
            rule = "must be a mapping of settings"
        case "string_type" if isinstance(value, (int, float)):
            rule, remedy = "must be text", f'write it in quotes: "{value}"'
        case _:
            rule = detail["msg"].removeprefix("Value error, ")
    return Violation(key, None if isinstance(value, (dict, list, NoneType)) else repr(value), rule, remedy)


def _one_of(value: object, expected: str) -> tuple[str, str]:
    """Rule and remedy for a value outside a closed set, which pydantic names as 'a', 'b' or 'c'."""
    valid = re.findall(rf"{_QUOTE}([^{_QUOTE}]*){_QUOTE}", expected) or [expected]
    return f"must be one of {', '.join(valid)}", nearest(str(value), valid)


def _written_path(data: object, detail: ErrorDetails) -> Iterator[int | str]:
    """Pydantic's location without the tags of unions, which nobody wrote into the file."""
    *inner, last = detail["loc"] or ("",)
    for part in inner:
        is_written = part in data if isinstance(data, Mapping) else isinstance(data, (list, tuple))
        if is_written:
            data = data[part]  # type: ignore[index]  # narrowed by is_written
            yield part
    is_tag = isinstance(last, str) and isinstance(data, Mapping) and last not in data and detail["type"] != "missing"
    if last != "" and not is_tag:
        yield last


def _fields_at(model: type[BaseModel], path: Sequence[int | str]) -> dict[str, Any]:
    """Fields that may be written at `path` below `model`, over all members of unions on the way."""
    models = [model]
    for part in path:
        fields = [one.model_fields[part] for one in models if isinstance(part, str) and part in one.model_fields]
        models = [found for field in fields for found in _models_in(field.annotation)] or models
    return {name: field for one in models for name, field in one.model_fields.items()}


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Every model inside an annotation, through containers, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
