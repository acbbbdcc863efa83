"""Reads the settings of a run from all sources into one validated tree, and renders it as YAML.

Precedence, lowest first: defaults, files, environment variables, flags, `--set`. Three settings depend on others:

* Options belong to a model or dataset. If the command line names another one than the file, the file's options (and data path)
  do not apply.
* Under `launcher=plain`, which runs one process, the default number of workers is 1.
* A number of workers replaces the range of an elastic run, with its least number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel

import training.data.registry
import training.models.registry
import training.objectives.registry
from infra.spec.errors import SettingsError
from infra.spec.section import validate
from infra.spec.yaml_text import inline
from training.config import sources
from training.config.schema import DataSettings, ModelSettings, ObjectiveSettings, TrainingSettings
from training.config.sources import Layer

_OWNED = (
    ("model", "name", ModelSettings().name, ("options",)),
    ("data", "dataset", DataSettings().dataset, ("options", "path")),
    ("objective", "name", ObjectiveSettings().name, ("options",)),
)
"""Section, key of the name, its default, and the keys that apply to that name only."""

_SEARCH = "search"

_TRACKING_SCHEMES = frozenset({"http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks"})


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The settings of a run before they are merged.

    Attributes:
        files: layers of the files, lowest first.
        invocation: layer of environment variables, flags and `--set`.
    """

    files: tuple[Layer, ...]
    invocation: Layer

    @classmethod
    def read(
        cls,
        config_files: Sequence[str | Path] = (),
        overrides: Sequence[str] = (),
        flags: Mapping[str, str | bool | None] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Configuration:
        """Read all sources; `load_settings` describes the arguments.

        Raises:
            SettingsError: a file or an override cannot be read.
        """
        return cls(
            files=tuple(sources.from_file(sources.find_config(file)) for file in config_files),
            invocation=reduce(
                sources.merge,
                [
                    sources.from_environment(environment),
                    sources.from_flags(flags or {}),
                    sources.from_overrides(overrides),
                ],
            ),
        )

    def settings(self, *, checks_names: bool = True) -> TrainingSettings:
        """Merge and check the settings; `load_settings` describes argument and errors."""
        merged = _in_groups(_plain_is_one_process(reduce(_lay_over, [*self.files, self.invocation], Layer())))
        _refuse_a_search(merged)
        settings = validate(
            TrainingSettings,
            merged.values,
            places=merged.origins,
            aliases=sources.FLAG_KEYS,
            remedy="python -m training train --print-config shows every key with its meaning",
        )
        try:
            if checks_names:
                validate_names(settings)
            check_tracking_uri(settings.tracking.uri)
        except SettingsError as error:
            raise _with_origin(error, merged) from None
        return settings


def load_settings(
    config_files: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
    flags: Mapping[str, str | bool | None] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    checks_names: bool = True,
) -> TrainingSettings:
    """Read, merge and check the settings of a run.

    Args:
        config_files: paths of YAML files or names of shipped ones; later ones override earlier ones.
        overrides: the values of `--set`, each `section.key=value`.
        flags: the plain flags as `sources.from_flags` takes them.
        environment: the environment variables.
        checks_names: check model, dataset and objective, for which a user's own must be on the import path.

    Raises:
        SettingsError: with origin, key, value, rule and the nearest valid name.
    """
    return Configuration.read(config_files, overrides, flags, environment).settings(checks_names=checks_names)


def validate_names(settings: TrainingSettings) -> None:
    """Check that model, dataset and objective exist and accept the options, and fit the strategy, without importing them.

    Raises:
        SettingsError: unknown name or option, or a pipeline of more stages than the model has parts; names the nearest valid one.
    """
    training.models.registry.validate(settings.model)
    training.models.registry.check_stages(settings.model, settings.strategy)
    training.data.registry.validate(settings.data)
    training.objectives.registry.validate(settings.objective, settings.checkpoint)


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
    """Merges two layers, without the lower one's options of a model or dataset, or its range of workers, that the upper one replaces."""
    values = dict(lower.values)
    origins = dict(lower.origins)
    above, below = upper.values.get("scale"), values.get("scale")
    if isinstance(above, dict) and isinstance(below, dict) and "workers" in above:
        values["scale"] = {key: value for key, value in below.items() if key != "min_workers"}
    for section, name_key, default, owned in _OWNED:
        below, above = values.get(section), upper.values.get(section)
        if not isinstance(below, dict) or not isinstance(above, dict):
            continue
        name = below.get(name_key, default)
        if above.get(name_key, name) != name:
            values[section] = {key: value for key, value in below.items() if key not in owned}
            dropped = {(section, key) for key in owned}
            origins = {path: origin for path, origin in origins.items() if path[:2] not in dropped}
    return sources.merge(Layer(values, origins, lower.groups), upper)


def _plain_is_one_process(merged: Layer) -> Layer:
    scale = merged.values.get("scale")
    if not isinstance(scale, dict) or scale.get("launcher") != "plain":
        return merged
    return sources.merge(Layer({"scale": {"workers": 1}}), merged)


def _in_groups(merged: Layer) -> Layer:
    """The settings with those that make groups of the ranks of each worker, if it has several."""
    if merged.groups is None:
        return merged
    strategy = merged.values.get("strategy")
    return sources.merge(
        merged, sources.from_keys(merged.groups.strategy_keys(strategy if isinstance(strategy, dict) else {}))
    )


def _refuse_a_search(merged: Layer) -> None:
    """Files of a search have a section more than those of a run (tune.config)."""
    if _SEARCH not in merged.values:
        return
    origins = {path: origin for path, origin in merged.origins.items() if path[0] == _SEARCH}
    raise SettingsError(
        f"{origins[min(origins, key=len)]}: {_SEARCH}: is a section of a search, not of a run",
        remedy="make tune CONFIG=… searches; to train the settings that its trials share, remove the section",
    )


def _with_origin(error: SettingsError, merged: Layer) -> SettingsError:
    """The error prefixed with the origin of its key; such messages start with `section.key=`."""
    message = str(error.args[0])
    key = re.match(r"[a-z_.]+", message)
    origin = merged.origins.get(tuple(key[0].split("."))) if key else None
    return SettingsError(f"{origin}: {message}", remedy=error.remedy) if origin else error
