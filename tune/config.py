"""Reads the configuration of a search: the settings that its trials share, and what varies between them.

Both stand in the same files, which are read as for `train`: the `search` section is the search's, the others are the trials'.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Final

from infra.spec.section import validate
from infra.spec.yaml_text import KeyPath, inline
from training.code.given import GivenCode
from training.config import sources
from training.config.load import Configuration
from training.config.schema import TrainingSettings
from training.config.sources import Layer
from training.errors import SettingsError
from training.options.given import SettingsOptions
from tune.objectives import check_reported, objectives_of
from tune.resources import check_scale
from tune.schedulers.check import check_scheduler
from tune.settings import SearchSettings
from tune.space.axes import Values
from tune.space.check import OWN_NAMES, check_space
from tune.space.comparable import check_comparable
from tune.space.settings import AxisSettings
from tune.space.space import Space

SHIPPED: Final = Path(__file__).resolve().parent / "configs"
"""Folder of the shipped searches; each is named by its file without the suffix."""

CONFIGURATION: Final = "tune.yaml"
"""File at the top of a code folder with the search of a command that names no configuration."""

SECTION = "search"
SPACE = "space"
_NO_VALUES: Values = {}


@dataclass(frozen=True, kw_only=True)
class SearchConfiguration:
    """A search before its first trial.

    Attributes:
        search: the `search` section.
        space: its axes.
        base: the sources of the settings that the trials share.
        origins: where each key of the `search` section was set, by the parts of its dotted name.
    """

    search: SearchSettings
    space: Space
    base: Configuration
    origins: Mapping[KeyPath, str] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        config_files: Sequence[str | Path],
        overrides: Sequence[str] = (),
        flags: Mapping[str, str | bool | None] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> SearchConfiguration:
        """Read all sources, as `training.config.load.load_settings` does.

        Raises:
            SettingsError: a source cannot be read, the `search` section or a condition of its space is invalid, or an axis of a
                grid has no end of values.
        """
        given = Configuration.read(config_files, overrides, flags, environment)
        layers = [_split(layer) for layer in (*given.files, given.invocation)]
        section = reduce(_lay_over, [ours for ours, _ in layers])
        if SECTION not in section.values:
            names = ", ".join(map(str, config_files))
            raise SettingsError(
                f"{names}: no {SECTION} section, which says what varies between the trials",
                remedy=f"add one there, or in {CONFIGURATION} of a code folder, for example "
                f"{SECTION}: {{space: {{optimizer.learning_rate: {{log_uniform: [1.0e-4, 1.0e-1]}}}}}}",
            )
        search = validate(SearchSettings, section.values[SECTION], above=SECTION, places=section.origins)
        with _with_origins(section.origins):
            space = Space.of(search.space)
            if search.algorithm == "grid":
                space.check_is_finite()
        *files, invocation = [theirs for _, theirs in layers]
        base = Configuration(files=tuple(files), invocation=invocation)
        return cls(search=search, space=space, base=base, origins=section.origins)

    def check(self) -> None:
        """Refuse a search that can run nowhere: for its space, its objectives, its scheduler, or the workers of a trial.

        Raises:
            SettingsError: names the place of the setting, the value and the rule.
        """
        with _with_origins(self.origins):
            check_space(self.space, self.settings)
            shared = self.shared
            objectives = objectives_of(self.search, shared)
            if (names := self.space.axes.get("objective.name")) is not None:
                for name in names.grid():
                    check_reported(objectives, str(name))
            check_comparable(self.space, shared, objectives=objectives, scheduler=self.search.scheduler.name)
            check_scheduler(
                self.search, self.space, epochs=shared.loop.epochs, evaluate_every=shared.loop.evaluate_every
            )
            check_scale(shared.scale, self.search)
            _check_checkpoints(shared)

    @property
    def shared(self) -> TrainingSettings:
        """The settings that all trials share, with the axes that have only one value.

        Raises:
            SettingsError: as `settings`.
        """
        return self.settings(self.space.fixed)

    @classmethod
    def of_options(
        cls, options: SettingsOptions, files: Sequence[str | Path], environment: Mapping[str, str] = os.environ
    ) -> SearchConfiguration:
        """Read the sources that a command line names; `files` are its configurations, by path or name.

        Raises:
            SettingsError: as `read`.
        """
        found = [_shipped(file) or file for file in files]
        return cls.read(found, options.set, options.flags(), environment)

    def settings(self, values: Values = _NO_VALUES) -> TrainingSettings:
        """The settings of a trial with these values.

        Raises:
            SettingsError: the values are unknown, invalid, or contradict each other or the shared settings.
        """
        chosen = sources.from_keys((key, value, f"{SECTION}.space") for key, value in values.items())
        return Configuration(files=(*self.base.files, self.base.invocation), invocation=chosen).settings()


def configuration_files(given: Sequence[str | Path], code: GivenCode | None) -> list[str | Path]:
    """The configurations of a new search: those given, else the user's own of a run and of a search, else the shipped one for digits."""
    if given or code is None:
        return list(given) or ["digits"]
    own = code.folder / CONFIGURATION
    return [*code.configuration(), *([own] if own.is_file() else [])] or ["digits"]


def render_search(search: SearchSettings) -> str:
    """The `search` section as YAML, each key under its description; `SearchConfiguration.read` reads it back equal."""
    values = search.model_dump(mode="json", exclude_defaults=False)
    lines = [f"{SECTION}:"]
    for name, info in SearchSettings.model_fields.items():
        lines.append(f"  # {info.description}")
        if name == SPACE:
            axes = {key: axis.model_dump(mode="json", exclude_unset=True) for key, axis in search.space.items()}
            lines += ["  space:", *(f"    {key}: {inline(axis)}" for key, axis in axes.items())]
        else:
            lines.append(f"  {name}: {inline(values[name])}")
    return "\n".join(lines) + "\n"


def _shipped(config: str | Path) -> Path | None:
    """The file of a search that is shipped under this name, if there is one."""
    path = SHIPPED / f"{config}.yaml"
    return path if Path(config).name == str(config) and path.is_file() else None


def _check_checkpoints(shared: TrainingSettings) -> None:
    """Refuse a bucket: trials are pruned, copied and continued in the search's folder, and their names are not unique."""
    if shared.checkpoint.remote is not None:
        raise SettingsError(
            f"checkpoint.remote={shared.checkpoint.remote}: a search keeps the checkpoints of its trials in its folder only",
            remedy="leave checkpoint.remote out; a run with the best trial's settings may have it",
        )


def _split(layer: Layer) -> tuple[Layer, Layer]:
    """The `search` section of a layer, with the axes of its space by dotted key, and the rest.

    The origins of the section are by the parts of their dotted keys, as in messages.
    """
    rest = Layer(
        {key: value for key, value in layer.values.items() if key != SECTION},
        {path: origin for path, origin in layer.origins.items() if path[0] != SECTION},
    )
    section = layer.values.get(SECTION)
    origins = {_parts(*path): origin for path, origin in layer.origins.items() if path[0] == SECTION}
    if not isinstance(section, dict):
        return Layer({} if section is None else {SECTION: section}, origins), rest
    if isinstance(space := section.get(SPACE), dict):
        axes = dict(_axes(space))
        section = section | {SPACE: axes}
        for path in [_parts(SECTION, SPACE, key) for key in axes]:
            # `--set` of a part of an axis is the origin of the axis.
            below = [origin for one, origin in origins.items() if one[: len(path)] == path]
            origins.setdefault(path, next(iter(below), origins.get((SECTION, SPACE), "")))
    return Layer({SECTION: section}, origins), rest


def _axes(space: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The axes by dotted key: `--set search.space.optimizer.name=sgd` nests what a file writes as one key."""
    for key, value in space.items():
        path = f"{above}{key}"
        is_section = "." not in path or path in OWN_NAMES
        if is_section and isinstance(value, dict) and value and not value.keys() & AxisSettings.model_fields.keys():
            yield from _axes(value, f"{path}.")
        else:
            yield path, value


def _lay_over(lower: Layer, upper: Layer) -> Layer:
    """Merge two layers of the section.

    The upper one replaces as a whole: axes, the objectives, and the settings of a scheduler if it names another one.
    """
    below, above = _section_of(lower), _section_of(upper)
    replaced = {"objectives"} & above.keys()
    if _scheduler_of(above) not in {None, _scheduler_of(below)}:
        replaced.add("scheduler")
    axes = above[SPACE].keys() if isinstance(above.get(SPACE), dict) else set()
    kept = {key: value for key, value in below.items() if key not in replaced}
    if isinstance(space := kept.get(SPACE), dict):
        kept[SPACE] = {key: axis for key, axis in space.items() if key not in axes}
    paths = [_parts(SECTION, key) for key in replaced] + [_parts(SECTION, SPACE, key) for key in axes]
    origins = {
        path: origin for path, origin in lower.origins.items() if not any(path[: len(one)] == one for one in paths)
    }
    return sources.merge(Layer({SECTION: kept} if below else lower.values, origins), upper)


def _section_of(layer: Layer) -> dict[str, Any]:
    """The section of a layer; empty if there is none, or something else in its place."""
    section = layer.values.get(SECTION)
    return section if isinstance(section, dict) else {}


def _scheduler_of(section: Mapping[str, Any]) -> object:
    scheduler = section.get("scheduler")
    return scheduler.get("name") if isinstance(scheduler, dict) else None


def _parts(*path: str) -> KeyPath:
    return tuple(".".join(path).split("."))


@contextmanager
def _with_origins(origins: Mapping[KeyPath, str]) -> Iterator[None]:
    """Prefix an error, whose message begins with a key, with the origin of the key or of what contains it."""
    try:
        yield
    except SettingsError as error:
        message = str(error.args[0])
        key = _parts(re.match(r"[\w.]*", message)[0].rstrip("."))  # type: ignore[index]  # it always matches
        found = (origins[key[:end]] for end in range(len(key), 0, -1) if origins.get(key[:end]))
        if origin := next(found, ""):
            raise SettingsError(f"{origin}: {message}", remedy=error.remedy) from error
        raise
