"""What commands work on: a run, settings, code of the user's own."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import argument, option
from infra.spec.errors import SettingsError
from training.config.sources import FLAG_KEYS, GPUS_PER_WORKER
from training.rundir import RUN_DIRECTORY, default_root


def _flag(name: str) -> str | None:
    value: str | None = option(f"sets {FLAG_KEYS[name]}", metavar="VALUE")
    return value


@dataclass(frozen=True, kw_only=True)
class RootOptions:
    """The folder of runs."""

    root: Path = option(
        f"folder of the runs (default: ${RUN_DIRECTORY}, else .local/runs)", default_factory=default_root
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(RootOptions):
    """The run to work on."""

    run: str | None = argument("name or folder of the run, e.g. first or ./first (default: the newest)")


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """Single settings."""

    set: tuple[str, ...] = option("set one key, e.g. loop.clip_norm=0.5; repeatable", metavar="KEY=VALUE")
    set_all: str | None = option("set several keys in one text, with the quotes of a shell", metavar="A.B=C D.E='F G'")

    def __post_init__(self) -> None:
        """Add the keys of `set_all` to those of `set`.

        Raises:
            SettingsError: a part of the text is no `key=value`, as where a value with spaces has no quotes.
        """
        if self.set_all is not None:
            object.__setattr__(self, "set", (*_split(self.set_all), *self.set))
            object.__setattr__(self, "set_all", None)  # a copy of the options has them once


def _split(text: str) -> list[str]:
    remedy = "put a value that has spaces into quotes: SET=\"a.b='c d' e.f=g\""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"SET={text}: {str(error).lower()}", remedy=remedy) from None
    for word in words:
        if "=" not in word:
            raise SettingsError(f"SET is split at spaces, and {word!r} is no section.key=value", remedy=remedy)
    return words


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(ChangeOptions):
    """The settings of a run: files, flags, single keys. Flags are text; the schema converts them."""

    config: tuple[str, ...] = option("YAML file or name of a shipped one; repeatable, later ones win")
    model: str | None = _flag("model")
    dataset: str | None = _flag("dataset")
    objective: str | None = _flag("objective")
    data_path: str | None = _flag("data_path")
    num_workers: str | None = _flag("num_workers")
    use_gpu: bool | None = option(f"sets {FLAG_KEYS['use_gpu']}")
    epochs: str | None = _flag("epochs")
    batch: str | None = _flag("batch")
    lr: str | None = _flag("lr")
    seed: str | None = _flag("seed")
    name: str | None = _flag("name")
    launcher: str | None = _flag("launcher")
    nodes: str | None = _flag("nodes")
    node_rank: str | None = _flag("node_rank")
    rendezvous: str | None = _flag("rendezvous")
    gpus_per_worker: str | None = option(
        "GPUs of each worker: 0 or 1, or more with strategy.name=pipeline or hsdp, whose ranks then share one copy of the model",
        metavar="N",
    )

    def flags(self) -> dict[str, str | bool | None]:
        """The plain flags by name, as `training.config.load.load_settings` takes them."""
        return {name: vars(self)[name] for name in (*FLAG_KEYS, GPUS_PER_WORKER)}


@dataclass(frozen=True, kw_only=True)
class OwnCodeOptions:
    """Code of the user's own."""

    code: Path | None = option("folder with your own code, or an archive of it that a run has kept", metavar="PATH")
