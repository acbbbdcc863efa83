"""What every model of the stack's plain data shares: strictness, reading YAML, and messages one can act on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from infra.errors import SettingsError


class Section(BaseModel):
    """A part of a file: frozen, unknown keys refused, defaults checked too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


M = TypeVar("M", bound=Section)


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
        lines = "".join(f"\n  {violation}" for violation in violations)
        raise SettingsError(f"{file}: {len(violations)} wrong setting{'s' * (len(violations) > 1)}{lines}")


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
        violations = [_violation(model, data, detail) for detail in error.errors(include_url=False)]
        refuse(file, violations)
        raise AssertionError("a validation error without details") from error


def _violation(model: type[BaseModel], data: Mapping[str, Any], detail: ErrorDetails) -> Violation:
    """Put one of pydantic's errors into our words."""
    path = list(_written_path(data, detail))
    key = ".".join(map(str, path)) or "(top level)"
    shown = None if isinstance(detail["input"], (dict, list)) else repr(detail["input"])
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            fields = _fields_at(model, path[:-1])
            return Violation(key, None, "no such setting", nearest(str(path[-1]), fields))
        case "missing":
            field = _fields_at(model, path[:-1])[str(path[-1])]
            return Violation(key, None, f"is required: {field.description}")
        case "literal_error" | "enum":
            return _not_one_of(key, detail["input"], context["expected"])
        case "union_tag_invalid":
            return _not_one_of(
                f"{key}.{context['discriminator'].strip(chr(39))}", context["tag"], context["expected_tags"]
            )
        case "model_type" | "model_attributes_type" | "dict_type":
            return Violation(key, shown, "must be a mapping of settings")
        case "string_type" if isinstance(detail["input"], (int, float)):
            return Violation(key, shown, "must be text", f'write it in quotes: "{detail["input"]}"')
        case _:
            return Violation(key, shown, detail["msg"].removeprefix("Value error, "))


def _not_one_of(key: str, value: object, expected: str) -> Violation:
    """A value outside a closed set, which pydantic names as 'a', 'b' or 'c'."""
    valid = re.findall(r"'([^']*)'", expected) or [expected]
    return Violation(key, repr(value), f"must be one of {', '.join(valid)}", nearest(str(value), valid))


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
