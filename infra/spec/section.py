"""Base of every data model: strict validation, reading from YAML, and actionable messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from ruamel.yaml.error import YAMLError

from infra.spec.errors import SettingsError
from infra.spec.yaml_text import Document, KeyPath, inline, read_file

_LONGEST_VALUE: Final = 60
_SWITCH: Final = PydanticCustomError("not_a_switch", "must not be true or false")
_NO_PLACES: Final[Mapping[KeyPath, str]] = {}


class Section(BaseModel):
    """A part of a file: frozen, unknown keys forbidden, defaults validated, numbers finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _true_is_not_a_number(cls, data: object) -> object:
        """Refuse `true` where pydantic would accept it as 1. A field validator cannot do it: a union's tag may have none."""
        fields = cls.model_fields
        wrong = [
            InitErrorDetails(type=_SWITCH, loc=loc, input=switch)
            for name, value in (data.items() if isinstance(data, Mapping) else ())
            if name in fields
            for loc, switch in _switches(name, value)
            if bool not in set(_types_in(fields[name].annotation))
        ]
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        return data


def _switches(name: str, value: object) -> Iterator[tuple[tuple[str | int, ...], bool]]:
    """The truth values of a setting, which may be a list, each with its place."""
    if isinstance(value, bool):
        yield (name,), value
    if isinstance(value, (list, tuple)):
        yield from (((name, number), item) for number, item in enumerate(value) if isinstance(item, bool))


def _types_in(annotation: object) -> Iterator[object]:
    """An annotation and all that it is made of."""
    yield annotation
    for argument in get_args(annotation):
        yield from _types_in(argument)


M = TypeVar("M", bound=BaseModel)


class Violation(NamedTuple):
    """One rule that one value breaks.

    Attributes:
        key: dotted path of the setting in the file.
        value: the invalid value; None if no single value is.
        rule: what every valid value satisfies.
        remedy: what to write instead; empty if the rule is enough.
    """

    key: str
    value: object
    rule: str
    remedy: str = ""

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {self.value!s}"
        hint = f"\n    remedy: {self.remedy}" if self.remedy else ""
        return f"{self.key}{shown}: {self.rule}{hint}"


def refuse(file: str, violations: Sequence[Violation], *, places: Mapping[KeyPath, str] = _NO_PLACES) -> None:
    """Raise one SettingsError that lists every violation with its place, if there are any."""
    if violations:
        raise _refusal(violations, file=file, places=places)


def did_you_mean(name: str, names: Sequence[str], *, cutoff: float = 0.6) -> str:
    """A question for the closest name, or an empty text if none is at least as similar as `cutoff` (difflib's ratio)."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"did you mean {close[0]}?" if close else ""


def nearest(name: str, valid: Iterable[str]) -> str:
    """The second half of a message about an unknown name: the closest valid name, or all of them."""
    names = sorted(valid)
    return did_you_mean(name, names, cutoff=0.5) or f"one of {', '.join(names)}"


def read_document(path: Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        SettingsError: the file does not exist, is not YAML, or is not a mapping.
    """
    document = read_file(path)
    if not isinstance(document.value, dict):
        raise SettingsError(f"{path}: the top level must be a mapping, got {type(document.value).__name__}")
    return document


def validate(
    model: type[M],
    data: Mapping[str, Any],
    *,
    file: str = "",
    above: str = "",
    places: Mapping[KeyPath, str] = _NO_PLACES,
    aliases: Mapping[str, str] = _NO_PLACES,  # type: ignore[assignment]  # empty
    remedy: str = "",
) -> M:
    """Validate `data` as `model`.

    Args:
        model: the model.
        data: plain data.
        file: origin of the data, for messages; empty if `places` has the origin of each key.
        above: dotted path of the key that contains the data.
        places: origin of each key, e.g. `line 12` or `--epochs`.
        aliases: dotted paths by alternative names.
        remedy: general remedy, in addition to those of single violations.

    Raises:
        SettingsError: names place, key, value, rule and nearest valid name for every violation.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found: dict[str, Violation] = {}
        for detail in _causes(error):
            violation = _violation(model, data, detail, places=places, aliases=aliases)
            key = ".".join(filter(None, (above, violation.key)))
            violation = violation._replace(key=key or "(top level)")
            known = found.get(violation.key)
            # Every member of a union reports the same value.
            rule = violation.rule if known is None else f"{known.rule} or {violation.rule.removeprefix('must be ')}"
            found[violation.key] = violation._replace(rule=rule)
        raise _refusal(list(found.values()), file=file, places=places, remedy=remedy) from error


def _causes(error: ValidationError) -> list[ErrorDetails]:
    """The errors of a validation, without lists that are too short only because their invalid items do not count."""
    found = error.errors(include_url=False)
    invalid = {detail["loc"][:-1] for detail in found}
    return [detail for detail in found if not (detail["type"] == "too_short" and detail["loc"] in invalid)]


def _refusal(
    violations: Sequence[Violation], *, file: str, places: Mapping[KeyPath, str], remedy: str = ""
) -> SettingsError:
    if not file and len(violations) == 1:
        [only] = violations
        end = " " if only.remedy.endswith("?") else "; "
        both = end.join(filter(None, (only.remedy, remedy)))
        return SettingsError(f"{_place(only.key, places)}{only._replace(remedy='')}", remedy=both)
    lines = [f"{_place(violation.key, places)}{violation}" for violation in violations]
    title = f"{file}: " * bool(file) + f"{len(lines)} wrong setting{'s' * (len(lines) > 1)}"
    return SettingsError("\n  ".join([title, *lines]), remedy=remedy)


def _place(key: str, places: Mapping[KeyPath, str]) -> str:
    """Origin of a key, or of the section that lacks it, as the prefix of a message."""
    path = tuple(key.split("."))
    given = next((places[path[:end]] for end in range(len(path), 0, -1) if path[:end] in places), "")
    return f"{given}: " if given else ""


def _violation(
    model: type[BaseModel],
    data: Mapping[str, Any],
    detail: ErrorDetails,
    *,
    places: Mapping[KeyPath, str],
    aliases: Mapping[str, str],
) -> Violation:
    """Convert a pydantic error."""
    path = list(_written_path(data, detail))
    key, remedy = ".".join(map(str, path)), ""
    value: str | None = _shown(detail["input"])
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            value, rule, remedy = None, "no such setting", _nearest_key(model, path, aliases)
        case "missing":
            key, value, rule = _missing(model, path, detail)
        case "literal_error" | "enum":
            rule, remedy = _one_of(detail["input"], context["expected"])
        case "union_tag_invalid":
            key, value = f"{key}.{context['discriminator'].strip(_QUOTE)}", str(context["tag"])
            rule, remedy = _one_of(value, context["expected_tags"])
        case "model_type" | "model_attributes_type":
            rule = f"must be a mapping with keys among: {', '.join(sorted(_fields_at(model, path)))}"
        case "tuple_type" | "list_type":
            rule = "must be a list"
        case "dict_type":
            rule = "must be a mapping"
        case "string_type" if isinstance(detail["input"], (int, float)):
            rule, remedy = "must be text", "write it in quotes"
        case "value_error":
            rule = str(context["error"]) + _given_keys(str(context["error"]), path, places)
            value = None if isinstance(detail["input"], (Mapping, BaseModel)) else value
        case _:
            rule = re.sub(r"^\w+ should", "must", detail["msg"]).removeprefix("Input ").split(", unable to parse")[0]
    return Violation(key, value, rule, remedy)


def _missing(model: type[BaseModel], path: Sequence[int | str], detail: ErrorDetails) -> tuple[str, str | None, str]:
    """Key, value and rule of a missing key, or of a list with too few items."""
    *above, last = path
    if isinstance(last, int):
        return ".".join(map(str, above)), _shown(detail["input"]), "has too few values"
    return ".".join(map(str, path)), None, f"is required: {_fields_at(model, above)[last].description}"


_QUOTE: Final = "'"


def _shown(value: object) -> str:
    """A value in YAML, truncated if long."""
    try:
        text = inline(value)
    except YAMLError:  # not plain data
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _one_of(value: object, expected: str) -> tuple[str, str]:
    """Rule, which lists the closed set, and the closest value of it; pydantic lists the set as 'a', 'b' or 'c'."""
    valid = re.findall(rf"{_QUOTE}([^{_QUOTE}]*){_QUOTE}", expected) or [expected]
    return f"must be one of {', '.join(valid)}", did_you_mean(str(value), valid, cutoff=0.5)


def _given_keys(message: str, section: Sequence[int | str], places: Mapping[KeyPath, str]) -> str:
    """Origins of the keys that a rule across keys names."""
    above = tuple(map(str, section))
    given = [
        f"{'.'.join(path)} from {place}"
        for path, place in places.items()
        if path[:-1] and path[: len(above)] == above and re.search(rf"\b{re.escape(path[-1])}\b", message)
    ]
    return f" ({', '.join(given)})" if given else ""


def _nearest_key(model: type[BaseModel], path: Sequence[int | str], aliases: Mapping[str, str]) -> str:
    """The closest key: by alias, else in the same section, else anywhere."""
    *above, last = path
    leaf = str(last)
    siblings = _fields_at(model, above)
    if leaf in siblings:  # the section is a union, and its name chose another member
        return f"it belongs to another {above[-1]}"
    anywhere = {key[-1]: ".".join(key) for key in _keys(model)}
    for candidates, cutoff in ((siblings, 0.5), (anywhere, 0.8)):
        if leaf in aliases:
            return f"did you mean {aliases[leaf]}?"
        close = difflib.get_close_matches(leaf, candidates, n=1, cutoff=cutoff)
        if close:
            return f"did you mean {close[0] if candidates is siblings else anywhere[close[0]]}?"
    return f"one of {', '.join(siblings)}" if siblings else ""


def _keys(model: type[BaseModel], above: KeyPath = ()) -> Iterator[KeyPath]:
    """The path of every key below a model; `*` is a list position or a mapping key."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        yield path
        inner = path if get_origin(field.annotation) not in {tuple, list, dict} else (*path, "*")
        for one in _models_in(field.annotation):
            yield from _keys(one, inner)


def _written_path(data: object, detail: ErrorDetails) -> Iterator[int | str]:
    """Pydantic's location without union tags and members, which are not in the file."""
    *inner, last = detail["loc"] or ("",)
    for part in inner:
        if _has(data, part):
            data = data[part]  # type: ignore[index]  # it has it
            yield part
    is_absent = detail["type"] == "missing" or (detail["type"] == "extra_forbidden" and isinstance(data, Mapping))
    if last != "" and (is_absent or _has(data, last)):
        yield last


def _has(data: object, part: int | str) -> bool:
    if isinstance(data, Mapping):
        return part in data
    return isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data)


def _fields_at(model: type[BaseModel], path: Sequence[int | str]) -> dict[str, Any]:
    """Valid fields at `path` below `model`, across all union members on the way."""
    models = [model]
    for part in path:
        fields = [one.model_fields[part] for one in models if isinstance(part, str) and part in one.model_fields]
        models = [found for field in fields for found in _models_in(field.annotation)] or models
    return {name: field for one in models for name, field in one.model_fields.items()}


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Every model inside an annotation, including containers, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
