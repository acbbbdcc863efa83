"""The commands that a search prints: lines of a shell in the platform's folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from infra.spec.cluster_names import LONGEST_JOB_NAME, SEARCHES_PATH
from tune.history import SearchHistory

BEST_FILE = "best.yaml"
_LONGEST_NAME = 63


def make(target: str, **variables: str) -> str:
    """A command of make with these variables."""
    # make expands dollar signs before its shell sees them.
    words = (f"{key}={shlex.quote(value.replace('$', '$$'))}" for key, value in variables.items())
    return " ".join(["make", target, *words])


def train_command(history: SearchHistory, directory: Path) -> str:
    """The command that trains the best values for all epochs, with the search's own copy of the user's code, if it had some.

    The run is named after the search and the trial: repeated, the command continues the run, and it begins another one once the
    search has found a better trial. The files of a search on a cluster are on its team's storage: the command takes copies.

    Args:
        history: a search with a result.
        directory: its folder.
    """
    is_on_cluster = directory.parent == Path(SEARCHES_PATH)
    suffix = f"-{history.ranked()[0].id}"
    longest = LONGEST_JOB_NAME if is_on_cluster else _LONGEST_NAME
    name = f"{history.name[: longest - len(suffix)]}{suffix}"
    code = history.started[-1].environment.get("code")
    files = {
        "CONFIG": directory / BEST_FILE,
        "NAME": name,
        **({} if code is None else {"CODE": directory / code["archive"]}),
    }
    if is_on_cluster:
        copies = {key: Path(file).name for key, file in files.items()}
        return make("train", **copies).replace("make train", "make train ENV=…", 1)
    return make("train", **{key: str(file) for key, file in files.items()})
