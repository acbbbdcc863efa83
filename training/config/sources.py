"""The sources of settings; each is read into a layer that records the origin of its values.

The layers, lowest first: the defaults of the schema, configuration files in the order given, environment variables,
flags, `--set`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from infra.spec.errors import SettingsError
from infra.spec.section import did_you_mean
from infra.spec.yaml_text import KeyPath, parse, read_file
from training.config.worker_groups import WorkerGroups

SHIPPED: Final = Path(__file__).resolve().parent.parent / "configs"
"""Folder of the shipped configurations; each is named by its file without the suffix."""

_OVERRIDE = re.compile(r"(?P<key>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True)
class Layer:
    """Values of one source.

    Attributes:
        values: nested by section, as the schema has them.
        origins: where each key was set, as messages name it: `my.yaml:12`, `--epochs`, `RTP_TRACKING_URI`.
        groups: the workers are groups of ranks, which the strategy says how to make.
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    groups: WorkerGroups | None = None


FLAG_KEYS: Final = {
    "model": "model.name",
    "dataset": "data.dataset",
    "objective": "objective.name",
    "data_path": "data.path",
    "num_workers": "scale.workers",
    "use_gpu": "scale.gpu",
    "epochs": "loop.epochs",
    "batch": "loop.global_batch",
    "lr": "optimizer.learning_rate",
    "seed": "run.seed",
    "name": "run.name",
    "launcher": "scale.launcher",
    "nodes": "scale.nodes",
    "node_rank": "scale.node_rank",
    "rendezvous": "scale.rendezvous",
}
"""The key that each flag sets, by its name in `training.options.SettingsOptions`: `num_workers` is `--num-workers`."""

GPUS_PER_WORKER: Final = "gpus_per_worker"
"""Name of the flag `--gpus-per-worker`: 0 is `--no-use-gpu`, 1 is `--use-gpu`; more see `worker_groups`."""

ENVIRONMENT: Final = {
    "RTP_TRACKING_URI": "tracking.uri",
    "RTP_EXPERIMENT": "tracking.experiment",
    "RTP_RUN_DIRECTORY": "run.directory",
}
"""Environment variables for machine-specific keys. An empty one is ignored."""


def shipped_names() -> tuple[str, ...]:
    """Names of the shipped configurations, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def find_config(config: str | Path) -> Path:
    """The file of a configuration, by path or by the name of a shipped one.

    Raises:
        SettingsError: the file does not exist; names the nearest shipped configuration.
    """
    path = Path(config)
    if isinstance(config, str) and path.name == config and not path.suffix:
        path = SHIPPED / f"{config}.yaml"
    if path.is_file():
        return path
    meant = did_you_mean(path.stem, shipped_names())
    raise SettingsError(
        f"--config {config}: no such file",
        remedy=f"{meant} give a path ending in .yaml, or one of: {', '.join(shipped_names())}".lstrip(),
    )


def from_file(path: Path) -> Layer:
    """The layer of a YAML file.

    Raises:
        SettingsError: unreadable, not YAML, or not a mapping of sections; with line and column.
    """
    document = read_file(path)
    if document.value is None:
        return Layer()
    if not isinstance(document.value, dict):
        raise SettingsError(
            f"{path}: is a {type(document.value).__name__}, not a mapping", remedy="write `section:` and its keys below"
        )
    # A later source replaces a list as a whole, so its items have no origin of their own.
    places = {key: place for key, place in document.places(str(path)).items() if not key[-1].isdecimal()}
    return Layer(document.value, places)


def from_environment(environment: Mapping[str, str]) -> Layer:
    """The layer of the variables in `ENVIRONMENT`."""
    return from_keys((key, environment[name], name) for name, key in ENVIRONMENT.items() if environment.get(name))


def from_flags(flags: Mapping[str, str | bool | None]) -> Layer:
    """The layer of a parsed command line.

    Args:
        flags: value by a name of `FLAG_KEYS` or `GPUS_PER_WORKER`; None for a flag that was not given. Values are text as
            typed, which the schema converts.

    Raises:
        SettingsError: several GPUs per worker without a number of workers, or a contradiction to `--use-gpu`.
        ValueError: unknown flag.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    per_worker = given.pop(GPUS_PER_WORKER, None)
    if unknown := given.keys() - FLAG_KEYS.keys():
        raise ValueError(f"unknown flags: {sorted(unknown)}")
    keys: list[tuple[str, Any, str]] = [(FLAG_KEYS[name], value, _typed(name, value)) for name, value in given.items()]
    groups = None
    if per_worker is not None:
        groups = WorkerGroups.of(str(per_worker), workers=given.get("num_workers"))
        uses_gpu = per_worker != "0"
        if given.get("use_gpu", uses_gpu) != uses_gpu:
            other = "--use-gpu" if given["use_gpu"] else "--no-use-gpu"
            raise SettingsError(
                f"--gpus-per-worker {per_worker} contradicts {other}", remedy="omit one of the two flags"
            )
        keys.append(("scale.gpu", uses_gpu, f"--gpus-per-worker {per_worker}"))
        if groups is not None:
            keys.append((FLAG_KEYS["num_workers"], groups.workers * groups.ranks, groups.typed))
    return replace(from_keys(keys), groups=groups)


def from_overrides(overrides: Sequence[str]) -> Layer:
    """The layer of `--set a.b=value` options: the value is YAML, an empty one is null, a later one wins.

    Raises:
        SettingsError: not of that form, or the value is not YAML.
    """
    keys: list[tuple[str, Any, str]] = []
    for text in overrides:
        match = _OVERRIDE.fullmatch(text)
        if match is None:
            raise SettingsError(
                f"--set {text}: not of the form section.key=value", remedy="for example --set loop.epochs=3"
            )
        keys.append((match["key"], parse(match["value"], source=f"--set {match['key']}").value, "--set"))
    return from_keys(keys)


def merge(lower: Layer, upper: Layer) -> Layer:
    """Merges two layers key by key; values of the upper one override those of the lower one."""
    return Layer(_merge(lower.values, upper.values), {**lower.origins, **upper.origins}, upper.groups or lower.groups)


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def from_keys(keys: Iterable[tuple[str, Any, str]]) -> Layer:
    """The layer of single settings: the dotted key, the value and the origin of each; a later one wins."""
    layer = Layer()
    for key, value, origin in keys:
        path = tuple(key.split("."))
        nested: Any = value
        for part in reversed(path):
            nested = {part: nested}
        layer = merge(layer, Layer(nested, {path: origin}))
    return layer


def _typed(name: str, value: object) -> str:
    """The flag as the user typed it."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
