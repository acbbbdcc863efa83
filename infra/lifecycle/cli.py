"""The commands of the stack: arguments in, exit status out.

Exit status: 0 done, 1 failed, 2 wrong input or settings, 3 refused by a guard or the preflight, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from infra.spec.errors import StackError
from infra.spec.settings import environment_names

INTERRUPTED = 130


def _graph(parser: argparse.ArgumentParser) -> None:
    _environment(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every resource as JSON")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the architecture, as .svg, .png or .pdf")


def _outputs(parser: argparse.ArgumentParser) -> None:
    _environment(parser)
    parser.add_argument("--file", type=Path, help="what `pulumi stack output --json` printed; asks pulumi without it")


def _environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", required=True, help=f"environment: {', '.join(environment_names())}")


def _optional_environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", help="refuse what this environment refuses, e.g. anything unresolved in prod")


def _staleness(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=int, default=90, help="age from which an entry is stale (default 90)")


def _refresh(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print what would be written")


def _release_lock(parser: argparse.ArgumentParser) -> None:
    _refresh(parser)
    parser.add_argument("--region", default="us-east-1", help="region that is asked for AMIs and add-ons")


def _change(parser: argparse.ArgumentParser) -> None:
    _environment(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask before anything is changed")


def _nothing(_parser: argparse.ArgumentParser) -> None:
    """Add no option."""


def _sandbox(parser: argparse.ArgumentParser) -> None:
    _environment(parser)
    parser.add_argument(
        "--crds",
        type=Path,
        metavar="FOLDER",
        help="folder of CRDs in YAML, used instead of the charts' and the engines'",
    )


def _image(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", nargs="?", choices=("trainer", "mlflow"), help="which; all of them without it")
    parser.add_argument("--variant", choices=("cuda", "cpu"), default="cuda", help="of the trainer (default cuda)")
    parser.add_argument("--push", action="store_true", help="push to the stack's registry and write the digest down")
    parser.add_argument("--env", help=f"environment whose registry it is: {', '.join(environment_names())}")


class _Command(NamedTuple):
    """A command: its summary, the function in `infra.lifecycle.commands` that does it, and its options.

    The function is imported when it is called: Pulumi, boto3 and matplotlib each take longer than most commands.
    """

    summary: str
    function: str
    options: Callable[[argparse.ArgumentParser], None]


_COMMANDS = {
    "graph": _Command("print every resource of an environment, and draw its architecture", "graph:graph", _graph),
    "cost": _Command("print what an environment costs by the hour, idle and full", "report:cost", _environment),
    "outputs": _Command("check a stack's outputs against the contract and this release", "report:outputs", _outputs),
    "release-check": _Command("check that the release fits together", "report:release_check", _optional_environment),
    "staleness": _Command("list what nobody has compared with its source lately", "report:stale", _staleness),
    "release-lock": _Command("look up what the release leaves open", "refresh:release_lock", _release_lock),
    "charts": _Command("fetch and verify the charts of an environment", "charts:fetch", _environment),
    "prices": _Command("bring the price table up to date", "refresh:prices", _refresh),
    "preflight": _Command("check account, quotas, offers and reservations", "stack:preflight", _environment),
    "preview": _Command("show what `up` would change, after the preflight", "stack:change", _change),
    "up": _Command("bring an environment up, after the preflight", "stack:change", _change),
    "destroy": _Command("destroy an environment", "stack:destroy", _change),
    "image": _Command("build our own images, and push them", "image:image", _image),
    "engines": _Command("build the programs of the sandbox and of the tests", "engines:engines", _nothing),
    "sandbox": _Command("start a Kubernetes here, with an environment's fake nodes", "sandbox:up", _sandbox),
    "sandbox-down": _Command("end the sandbox, its processes and its files", "sandbox:down", _nothing),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the command line; None takes the process's own.

    Returns:
        the exit status of the process.
    """
    options = _parser().parse_args(arguments)
    module, _, function = _COMMANDS[options.name].function.partition(":")
    try:
        status: int = getattr(import_module(f"infra.lifecycle.commands.{module}"), function)(options)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.lifecycle", description="Commands of the stack.")
    commands = parser.add_subparsers(metavar="command", required=True, dest="name")
    for name, command in _COMMANDS.items():
        summary = command.summary
        command.options(commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."))
    return parser
