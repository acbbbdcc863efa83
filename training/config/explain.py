"""Turns pydantic's account of wrong settings into messages for people: place, key, value, rule, nearest valid name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from training.config import yaml_text
from training.config.schema import TrainingSettings
from training.config.sources import FLAGS
from training.config.yaml_text import KeyPath
from training.errors import SettingsError

_LONGEST_VALUE = 60


def settings_error(
    error: ValidationError, *, values: Mapping[str, Any], origins: Mapping[KeyPath, str]
) -> SettingsError:
    """The error to raise for settings that the schema refused.

    Args:
        error: what pydantic found.
        values: the merged input.
        origins: where each key of it was given.
    """
    problems: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        path = _existing(detail["loc"], values)
        # Of a union each member has its own complaint about one value; the first says enough.
        problems.setdefault(".".join(path), _problem(detail, path, origins))
    remedy = "python -m training train --print-config shows every key with its meaning"
    lines = list(problems.values())
    if len(lines) == 1:
        return SettingsError(lines[0], remedy=remedy)
    return SettingsError("\n  ".join([f"{len(lines)} settings are wrong:", *lines]), remedy=remedy)


def field_paths(model: type[BaseModel] = TrainingSettings, below: KeyPath = ()) -> Iterator[KeyPath]:
    """The path of every key of the schema, sections left out."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from field_paths(info.annotation, (*below, name))
        else:
            yield (*below, name)


def _existing(location: tuple[int | str, ...], values: Mapping[str, Any]) -> KeyPath:
    """The keys in pydantic's location; list positions and names of union members follow them."""
    path: list[str] = []
    here: Any = values
    for part in location:
        if not isinstance(here, Mapping) or part not in here:
            break
        path.append(str(part))
        here = here[part]
    return tuple(path)


def _problem(detail: ErrorDetails, path: KeyPath, origins: Mapping[KeyPath, str]) -> str:
    kind = detail["type"]
    if kind == "value_error":
        return _contradiction(str(detail["ctx"]["error"]), path, origins)
    place = f"{origins[path]}: " if path in origins else ""
    key = ".".join(path)
    if kind == "extra_forbidden":
        return f"{place}unknown key `{key}`; {_nearest_key(path)}"
    position = "".join(f"[{part}]" for part in detail["loc"][len(path) :] if isinstance(part, int))
    return f"{place}{key}{position}={_shown(detail['input'])} {_rule(detail, path)}"


def _rule(detail: ErrorDetails, path: KeyPath) -> str:
    if detail["type"] == "model_type":
        keys = sorted(known[-1] for known in field_paths() if known[:-1] == path)
        return f"must be a section with keys among: {', '.join(keys)}"
    if path[1:2] == ("options",) and len(path) == 3:
        return "must be a boolean, a number, text, null, or a list of numbers or texts"
    if detail["type"] == "literal_error":
        expected = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        near = difflib.get_close_matches(str(detail["input"]), expected, n=1)
        return f"must be one of: {', '.join(expected)}" + (f"; nearest: {near[0]}" if near else "")
    rule = re.sub(r"^(Input|String|Value) should", "must", detail["msg"])
    return rule.split(", unable to parse")[0]


def _contradiction(message: str, section: KeyPath, origins: Mapping[KeyPath, str]) -> str:
    """A rule between keys: its own words, and where the keys that it names were given."""
    given = [
        f"{'.'.join(path)} from {origin}"
        for path, origin in origins.items()
        if path[: len(section)] == section and len(path) == 2 and re.search(rf"\b{re.escape(path[-1])}\b", message)
    ]
    name = f"{'.'.join(section)}: " if section else ""
    return f"{name}{message}" + (f" ({', '.join(given)})" if given else "")


def _nearest_key(path: KeyPath) -> str:
    """The key probably meant: the one a flag of this name sets, else one like it in the section, else anywhere."""
    *section, leaf = path
    for flag in FLAGS:
        if flag.destination == leaf:
            return f"nearest: {flag.key}"
    siblings = {
        known[len(section)]: known[: len(path)] for known in field_paths() if known[: len(section)] == tuple(section)
    }
    elsewhere = {known[-1]: known for known in field_paths()}
    for candidates in (siblings, elsewhere):
        near = difflib.get_close_matches(leaf, candidates, n=1) or [name for name in candidates if leaf in name]
        if near:
            return f"nearest: {'.'.join(candidates[near[0]])}"
    return f"{'.'.join(section) or 'the settings'} has: {', '.join(siblings)}"


def _shown(value: object) -> str:
    text = yaml_text.inline(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
