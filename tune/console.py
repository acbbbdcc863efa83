"""The program `rtp`: `rtp COMMAND` is `python -m training COMMAND`, and `rtp tune COMMAND` is `python -m tune COMMAND`.

A wheel installs it. It lies in the topmost package, which may import both command lines.
"""

# PYTHON_ARGCOMPLETE_OK

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from infra.spec.command_line import print_error
from infra.spec.errors import RefusedError
from training.cli import COMMANDS as TRAINING
from tune.cli import COMMANDS as TUNE

COMMANDS = TRAINING.script("rtp", groups={"tune": TUNE})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is one of `ExitStatus`."""
    if sys.stderr is not None:
        faulthandler.enable()  # a crash in a compiled library, such as Ray's, shows where it happened
    try:
        return COMMANDS.main(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or find_spec(package) is not None:
            raise
        refusal = RefusedError(
            f"the Python module {package} is not installed",
            remedy="pip install 'ray-train-platform[train]', or for commands with --env 'ray-train-platform[cluster]'",
        )
        print_error(refusal)
        return refusal.status
