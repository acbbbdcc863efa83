"""The pages of settings, from the JSON Schemas of their models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from infra.spec.settings.schema import environment_schema
from tests.reference.markdown import code, page, section, table
from training.config.schema import TrainingSettings
from training.data.registry import DATASETS
from training.factories import FactorySpec
from training.models.registry import MODELS
from training.objectives.registry import OBJECTIVES
from tune.settings import SearchSettings

Schema = Mapping[str, Any]

_HEAD: Final = ("key", "type", "default", "constraint", "meaning")
_LONGEST_DEFAULT: Final = 60
_LONGEST_UNION: Final = 4
_BOUNDS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_SIZES: Final = {"minItems": "at least {} items", "maxItems": "at most {} items", "minLength": "at least {} characters"}
_TYPES: Final = {
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "string": "text",
    "object": "mapping",
}
_FORMATS: Final = {"path": "path", "date-time": "time with zone", "date": "date"}


def training_page() -> str:
    """The page of a run's settings."""
    schema = TrainingSettings.model_json_schema()
    return page(
        "Settings of a run",
        "Later sources override earlier ones: defaults, `--config` files, [environment variables](environment-variables.md), flags, "
        "`--set SECTION.KEY=VALUE`. `python -m training train --print-config` prints all settings of a run. A default of `null` is none.",
        *_sections(schema),
        *(_registry(*one) for one in _REGISTRIES),
    )


_REGISTRIES: Final = (
    ("Options of the models", "model.options", MODELS.specs),
    ("Options of the datasets", "data.options", DATASETS.specs),
    ("Options of the objectives", "objective.options", OBJECTIVES.specs),
)


def search_page() -> str:
    """The page of a search's settings."""
    schema = SearchSettings.model_json_schema()
    return page(
        "Settings of a search",
        "The section `search` of a configuration; its other sections are the [settings of a run](training-settings.md) that "
        "the trials share.",
        section("`search`", _table(schema, schema, "search.")),
        *_below(schema, schema, "search."),
    )


def environment_page() -> str:
    """The page of an environment's settings."""
    return page(
        "Settings of an environment",
        "The file `infra/environments/ENV.yaml`. `[]` stands for every item of a list, `*` for every key of a mapping. Rules between "
        "settings are checked by every command that reads the file, and by the preflight.",
        *_sections(environment_schema()),
    )


def _sections(root: Schema) -> Iterator[str]:
    """A section for each top-level key; keys without keys of their own come first."""
    plain = {name: one for name, one in root["properties"].items() if not list(_models(root, one))}
    yield section("Top level", _table({**root, "properties": plain}, root, ""))
    for name, one in root["properties"].items():
        yield from _of_key(root, one, name, "")


def _below(root: Schema, schema: Schema, above: str) -> Iterator[str]:
    for name, one in schema.get("properties", {}).items():
        yield from _of_key(root, one, name, above)


def _of_key(root: Schema, one: Schema, name: str, above: str) -> Iterator[str]:
    """The sections of a key with keys of its own, and of what is below them; a model of a union has its own."""
    models = list(_models(root, one))
    for suffix, model in models:
        path = f"{above}{name}{suffix}"
        kind = _tag(model) if len(models) > 1 else ""
        title = f"{code(path)}, {kind}" if kind else code(path)
        described = one.get("description") or _first_line(model)
        yield section(title, described, _table(model, root, f"{path}."))
        yield from _below(root, model, f"{path}.")


def _models(root: Schema, one: Schema, suffix: str = "") -> Iterator[tuple[str, Schema]]:
    """The models that a value may be, or have as items, with what follows the key in the path."""
    if "$ref" in one:
        found = root["$defs"][one["$ref"].rpartition("/")[2]]
        if "properties" in found:
            yield suffix, found
    for each in (*one.get("anyOf", ()), *one.get("oneOf", ())):
        yield from _models(root, each, suffix)
    if isinstance(items := one.get("items"), dict):
        yield from _models(root, items, f"{suffix}[]")
    for values in _values(one):
        yield from _models(root, values, f"{suffix}.*")


def _values(one: Schema) -> Iterator[Schema]:
    """The schemas of a mapping's values."""
    if isinstance(one.get("additionalProperties"), dict):
        yield one["additionalProperties"]
    yield from one.get("patternProperties", {}).values()


def _tag(model: Schema) -> str:
    """The constant that chooses a model of a union, as `kind: spot`."""
    constants = ((key, value["const"]) for key, value in model["properties"].items() if "const" in value)
    return ", ".join(f"{code(f'{key}: {value}')}" for key, value in constants)


def _table(schema: Schema, root: Schema, above: str) -> str:
    required = schema.get("required", ())
    rows = []
    for name, one in schema["properties"].items():
        found = _resolved(root, one)
        default = "required" if name in required else _default(one)
        meaning = one.get("description") or _first_line(found)
        rows.append((code(f"{above}{name}"), _type(root, one), default, ", ".join(_constraints(root, one)), meaning))
    return table(_HEAD, rows)


def _resolved(root: Schema, one: Schema) -> Schema:
    found: Schema = root["$defs"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
    return found


def _type(root: Schema, one: Schema) -> str:
    one = _resolved(root, one)
    match one:
        case {"enum": values}:
            return ", ".join(code(json.dumps(value).strip('"')) for value in values)
        case {"prefixItems": items}:
            return f"list of {len(items)}: {_type(root, items[0])}"
        case {"items": item}:
            return f"list of {_type(root, item)}"
        case {"properties": _}:
            return "section"
        case {"anyOf": members} | {"oneOf": members}:
            return " or ".join(dict.fromkeys(_type(root, member) for member in members))
        case _:
            return _plain_type(root, one)


def _plain_type(root: Schema, one: Schema) -> str:
    """A mapping, whose values are left out if they may be almost anything, or a type without parts."""
    if "const" in one:
        return code(one["const"])
    values = next((_type(root, each) for each in _values(one)), "")
    if values.count(" or ") < _LONGEST_UNION and values:
        return f"mapping to {values}"
    names = one.get("type", "any")
    known = [_TYPES.get(name, name) for name in ([names] if isinstance(names, str) else names)]
    return _FORMATS.get(one.get("format", ""), " or ".join(known))


def _constraints(root: Schema, one: Schema) -> Iterator[str]:
    """The bounds and patterns of a value, of its items and of the members of a union."""
    one = _resolved(root, one)
    if "properties" in one:
        return
    yield from (f"{sign} {_number(one[key])}" for key, sign in _BOUNDS.items() if key in one)
    yield from (text.format(one[key]) for key, text in _SIZES.items() if key in one and "prefixItems" not in one)
    if pattern := one.get("pattern"):
        yield code(pattern)
    yield from (code(pattern) for pattern in one.get("patternProperties", ()))
    inner: Iterable[Schema] = (*one.get("anyOf", ()), *one.get("oneOf", ()), *_values(one))
    if isinstance(items := one.get("items"), dict):
        inner = (*inner, items)
    yield from dict.fromkeys(text for each in inner for text in _constraints(root, each))


def _number(bound: float) -> str:
    """A bound, in full if it is an integer."""
    return f"{bound:.0f}" if bound == int(bound) else f"{bound:g}"


def _default(one: Schema) -> str:
    """The default in YAML's flow style; that of a section is in its own table."""
    if "default" not in one:
        return ""
    default = one["default"]
    text = default if isinstance(default, str) and default else json.dumps(default, ensure_ascii=False)
    return code(text) if len(text) <= _LONGEST_DEFAULT else ""


def _first_line(schema: Schema) -> str:
    return str(schema.get("description", "")).partition("\n")[0]


def _registry(title: str, key: str, specs: Iterable[FactorySpec]) -> str:
    by_options: dict[type[BaseModel], list[str]] = {}
    for spec in specs:
        by_options.setdefault(spec.options, []).append(spec.name)
    parts = []
    for options, names in by_options.items():
        schema = options.model_json_schema()
        below = _table(schema, schema, f"{key}.") if schema.get("properties") else "No options."
        parts.append(section(", ".join(map(code, names)), _first_line(schema), below, level=3))
    return section(title, *parts)
