"""The options of the search's commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import argument, option
from training.options.cluster import FollowOptions, SubmissionOptions
from training.options.given import OwnCodeOptions, SettingsOptions
from tune.settings import DEFAULT_ROOT


@dataclass(frozen=True, kw_only=True)
class SearchOptions(FollowOptions, SubmissionOptions, OwnCodeOptions, SettingsOptions):
    """A new search, or one to continue."""

    print_config: bool = option("print all settings, of the trials and of the search, and exit", default=False)
    out: str | None = option(
        "with --env: write the job as YAML to this file, - is standard output; submits nothing", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """The search to look at."""

    search: str | None = argument("name or folder of the search (default: the newest)")
    root: Path = option("folder of the searches (default: .local/searches)", DEFAULT_ROOT)


@dataclass(frozen=True, kw_only=True)
class NotebookOptions(StatusOptions):
    """The search to open."""

    port: int | None = option("port of JupyterLab (default: 8888, or the next that is free)", at_least=1, at_most=65535)
    write_only: bool = option("write the notebook into the search's folder, print its path and exit", default=False)
