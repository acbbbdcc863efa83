"""Reads the settings of a run from all sources into one validated tree, and renders it as YAML.

Precedence, lowest first: defaults, files, environment variables, flags, `--set`. Two settings depend on others:

* Options belong to a model or dataset. If the command line names another one than the file, the file's options (and data path)
  do not apply.
* Under `launcher=plain`, which runs one process, the default number of workers is 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel

import training.data.registry
import training.models.registry
from infra.spec.errors import SettingsError
from infra.spec.section import validate
from infra.spec.yaml_text import inline
from training.config import sources
from training.config.schema import DataSettings, ModelSettings, TrainingSettings
from training.config.sources import Layer

_OWNED = (
    ("model", "name", ModelSettings().name, ("options",)),
    ("data", "dataset", DataSettings().dataset, ("options", "path")),
)
"""Section, key of the name, its default, and the keys that apply to that name only."""

_TRACKING_SCHEMES = frozenset({"http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks"})


def load_settings(
    config_files: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
    flags: Mapping[str, str | bool | None] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> TrainingSettings:
    """Read, merge and check the settings of a run.

    Args:
        config_files: paths of YAML files or names of shipped ones; later ones override earlier ones.
        overrides: the values of `--set`, each `section.key=value`.
        flags: the plain flags as `sources.from_flags` takes them.
        environment: the environment variables.

    Raises:
        SettingsError: with origin, key, value, rule and the nearest valid name.
    """
    files = [sources.from_file(sources.find_config(file)) for file in config_files]
    invocation = reduce(
        sources.merge,
        [sources.from_environment(environment), sources.from_flags(flags or {}), sources.from_overrides(overrides)],
    )
    merged = _plain_is_one_process(reduce(_lay_over, [*files, invocation], Layer()))
    settings = validate(
        TrainingSettings,
        merged.values,
        places=merged.origins,
        aliases=sources.FLAG_KEYS,
        remedy="python -m training train --print-config shows every key with its meaning",
    )
    try:
        validate_names(settings)
        check_tracking_uri(settings.tracking.uri)
    except SettingsError as error:
        raise _with_origin(error, merged) from None
    return settings


def validate_names(settings: TrainingSettings) -> None:
    """Check that model and dataset exist and accept the options, without importing either.

    Raises:
        SettingsError: unknown name or option; names the nearest valid one.
    """
    training.models.registry.validate(settings.model)
    training.data.registry.validate(settings.data)


def check_tracking_uri(uri: str | None) -> None:
    """Check that a URI is valid for an MLflow store, without contacting it.

    Raises:
        SettingsError: the scheme is missing or unknown to MLflow, or the host is missing.
    """
    if uri is None or uri == "databricks":
        return
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError(f"tracking.uri={uri} is not a valid address: {error}") from error
    scheme = parts.scheme.partition("+")[0]
    if scheme not in _TRACKING_SCHEMES or (scheme in {"http", "https"} and not host):
        raise SettingsError(
            f"tracking.uri={uri} is not an address of an MLflow store",
            remedy="write http://HOST:PORT or sqlite:///FILE, or omit it for the embedded database",
        )


def render(settings: TrainingSettings) -> str:
    """The whole tree as YAML, each key under its description; `load_settings` reads it back equal."""
    return "\n".join(f"{name}:\n{_render_section(getattr(settings, name))}" for name in TrainingSettings.model_fields)


def _render_section(section: BaseModel) -> str:
    values = section.model_dump(mode="json")
    return "".join(
        f"  # {info.description}\n  {name}: {inline(values[name])}\n"
        for name, info in type(section).model_fields.items()
    )


def _lay_over(lower: Layer, upper: Layer) -> Layer:
    """Merges two layers, without the lower one's options of a model or dataset that the upper one replaces."""
    values = dict(lower.values)
    origins = dict(lower.origins)
    for section, name_key, default, owned in _OWNED:
        below, above = values.get(section), upper.values.get(section)
        if not isinstance(below, dict) or not isinstance(above, dict):
            continue
        name = below.get(name_key, default)
        if above.get(name_key, name) != name:
            values[section] = {key: value for key, value in below.items() if key not in owned}
            dropped = {(section, key) for key in owned}
            origins = {path: origin for path, origin in origins.items() if path[:2] not in dropped}
    return sources.merge(Layer(values, origins), upper)


def _plain_is_one_process(merged: Layer) -> Layer:
    scale = merged.values.get("scale")
    if not isinstance(scale, dict) or scale.get("launcher") != "plain":
        return merged
    return sources.merge(Layer({"scale": {"workers": 1}}), merged)


def _with_origin(error: SettingsError, merged: Layer) -> SettingsError:
    """The error prefixed with the origin of its key; such messages start with `section.key=`."""
    message = str(error.args[0])
    key = re.match(r"[a-z_.]+", message)
    origin = merged.origins.get(tuple(key[0].split("."))) if key else None
    return SettingsError(f"{origin}: {message}", remedy=error.remedy) if origin else error
