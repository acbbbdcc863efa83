"""The command line: `python -m tune COMMAND`. `make tune` and the like call it.

Commands import their heavier modules themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from infra.spec.command_line import CommandLine
from infra.spec.variables.inventory import described
from infra.spec.yaml_text import inline
from training.code.given import given_code, importable
from training.code.kept import current
from training.config.load import render
from training.errors import ExitStatus
from training.options.cluster import check_local
from training.rundir import RUN_DIRECTORY
from tune.config import SearchConfiguration, configuration_files, render_search
from tune.folder import SearchFolder
from tune.options import NotebookOptions, SearchOptions, StatusOptions
from tune.settings import DEFAULT_ROOT

COMMANDS = CommandLine(
    "python -m tune",
    "Search for the best settings: train trials with different ones, and compare them.",
    variables=described(RUN_DIRECTORY, "RTP_TRACKING_URI", "RTP_EXPERIMENT", "RTP_STACK_OUTPUTS", "KUBECONFIG"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is one of `ExitStatus`."""
    return COMMANDS.main(arguments)


@COMMANDS.command("search")
def search(options: SearchOptions) -> int:
    """Start a search, or continue the one with this name; without a configuration it searches settings for digits.

    With --env it is a job on a cluster.
    """
    if options.env is not None:
        from tune import cluster

        return cluster.search(options)
    check_local(options, *(["--out"] if options.out else []))
    options, named = _located(options)
    archive = given_code(options.code) or (current(named.path) if named else None)
    with importable(archive) as code:
        given = options.config or (() if named is None else (named.settings_file,))
        configuration = SearchConfiguration.of_options(options, configuration_files(given, code))
        if options.print_config:
            print(render(configuration.settings()) + render_search(configuration.search), end="")
            return ExitStatus.DONE
        from tune import driver

        checked = driver.check(configuration)
    return driver.drive(checked, archive)


@COMMANDS.command("look at searches")
def status(options: StatusOptions) -> ExitStatus:
    """Print how far a search is, its running trials and the best of the others."""
    from tune.table import print_status

    folder = SearchFolder.open(options.search, root=options.root)
    print_status(folder.path, sys.stdout, is_running=folder.is_running())
    return ExitStatus.DONE


@COMMANDS.command("look at searches")
def report(options: StatusOptions) -> ExitStatus:
    """Write the report of a search again, also while it runs, and print its path."""
    folder = SearchFolder.open(options.search, root=options.root)
    from tune.report import write_report

    print(write_report(folder.path, is_running=folder.is_running()))
    return ExitStatus.DONE


@COMMANDS.command("look at searches")
def notebook(options: NotebookOptions) -> ExitStatus:
    """Open the search's notebook in JupyterLab until Ctrl-C; it lies in the search's folder, and edits to it stay."""
    from training.jupyterlab import start_jupyterlab
    from tune.notebook import write_notebook

    file = write_notebook(SearchFolder.open(options.search, root=options.root).path)
    print(file)
    if not options.write_only:
        start_jupyterlab(file, port=options.port)
    return ExitStatus.DONE


def _located(options: SearchOptions) -> tuple[SearchOptions, SearchFolder | None]:
    """The options with a name that is a folder split into `search.directory` and name, and the search to continue, if there is one."""
    if not options.name:
        return options, None
    path = Path(options.name) if os.sep in options.name else DEFAULT_ROOT / options.name
    if os.sep in options.name:
        parent = f"search.directory={inline(str(path.parent))}"
        options = replace(options, name=path.name, set=(*options.set, parent))
    folder = SearchFolder(path)
    return options, folder if folder.settings_file.is_file() else None
