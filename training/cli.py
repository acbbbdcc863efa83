"""The command line: `python -m training COMMAND`. `make train` and its like are thin over it.

Each command is a function of the parsed arguments that returns an exit status. Nothing heavy is imported here: help and every refusal
come within a second.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from training import commands
from training.config import sources
from training.config.schema import RunSettings
from training.errors import ExitStatus, PlatformError

_RUN_DIRECTORY = "RTP_RUN_DIRECTORY"
_DEFAULT_ROOT = Path(os.environ.get(_RUN_DIRECTORY) or str(RunSettings.model_fields["directory"].default))

Command = Callable[[argparse.Namespace], ExitStatus]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is one of `training.errors.ExitStatus`."""
    parsed = _parser().parse_args(arguments)
    try:
        return _command(parsed)(parsed)
    except PlatformError as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe, `head` say, has had enough. Python would complain once more when it flushes at exit.
        sys.stderr.close()
        return ExitStatus.DONE


def _command(parsed: argparse.Namespace) -> Command:
    """What was asked for: a command of this machine, or with `--env` the one of the same name on a cluster."""
    if getattr(parsed, "env", None) is None:
        here: Command = parsed.command
        return here
    # Reads the stack's files, and takes half a second to import.
    from training.cluster import commands as cluster  # noqa: PLC0415

    there: Command = getattr(cluster, parsed.asked)
    return there


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__.splitlines()[0])
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_train(subparsers)
    _add_resume(subparsers)
    _add_job(subparsers)
    jobs = _add(
        subparsers, "jobs", commands.jobs, "list the runs of this machine, or the jobs of a cluster, newest first"
    )
    _add_root(jobs)
    _add_cluster(jobs)
    logs = _add_for_run(subparsers, "logs", commands.logs, "print a run's log of events in words, or a rank's own log")
    logs.add_argument("--rank", type=int, help="the log of this rank instead")
    _add_cluster(logs).add_argument("--pod", help="what this pod of the job wrote instead")
    stop = _add_for_run(subparsers, "stop", commands.stop, "have a running run commit its state and end")
    _add_detach(_add_cluster(stop))
    _add_for_run(subparsers, "verify", commands.verify, "verify every checkpoint of a run, sizes and sha256")
    _add_for_run(subparsers, "report", commands.report, "write a run's report anew")
    monitor = _add_for_run(subparsers, "monitor", commands.monitor, "watch a run in the terminal; never touches it")
    monitor.add_argument("--once", action="store_true", help="print one picture and end")
    _add_for_run(subparsers, "sync", commands.sync, "send what MLflow has not had yet; of all runs where none is named")
    ui = _add(subparsers, "ui", commands.ui, "open MLflow on the embedded store")
    ui.add_argument("--port", type=int, default=0, help="port on loopback; any free one by default")
    _add(subparsers, "schema", commands.schema, "print the JSON Schema of the settings")
    return parser


def _add(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: Command | None, summary: str
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, help=summary, description=summary)
    parser.set_defaults(command=command, asked=name)
    return parser


def _add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=Path, default=_DEFAULT_ROOT, help=f"folder of the runs (${_RUN_DIRECTORY}, else .local/runs)"
    )


def _add_for_run(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: Command, summary: str
) -> argparse.ArgumentParser:
    parser = _add(subparsers, name, command, summary)
    _add_root(parser)
    parser.add_argument("run", nargs="?", help="name or folder of the run; the newest by default")
    return parser


def _add_train(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(subparsers, "train", commands.train, "train a model, on this machine or with --env on a cluster")
    _add_settings(parser)
    parser.add_argument("--print-config", action="store_true", help="print the whole settings and end")
    _add_following(_add_wishes(_add_cluster(parser)))


def _add_job(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(subparsers, "job", None, "write what `train --env` would submit as YAML; asks no cluster")
    _add_settings(parser)
    group = _add_wishes(_add_cluster(parser, is_required=True))
    group.add_argument("--out", metavar="FILE", help="file to write; - or none prints it")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        help="YAML file or name of a shipped one; may be repeated, later ones win",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one key, e.g. loop.clip_norm=0.5; may be repeated",
    )
    for flag in sources.FLAGS:
        if flag.is_switch:
            parser.add_argument(flag.option, action=argparse.BooleanOptionalAction, help=f"sets {flag.key}")
        else:
            parser.add_argument(flag.option, metavar="VALUE", help=f"sets {flag.key}")
    parser.add_argument(
        "--gpus-per-worker", metavar="N", help="0 or 1: a rank drives one GPU; more GPUs take more workers"
    )


def _add_resume(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add_for_run(subparsers, "resume", commands.resume, "go on with a run from its newest good checkpoint")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change one key, e.g. loop.epochs=20"
    )
    _add_following(_add_wishes(_add_cluster(parser)))


def _add_cluster(parser: argparse.ArgumentParser, *, is_required: bool = False) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("on a cluster")
    group.add_argument("--env", required=is_required, help="environment of the stack")
    group.add_argument(
        "--outputs", type=Path, metavar="FILE", help="its outputs ($RTP_STACK_OUTPUTS); asks pulumi without it"
    )
    group.add_argument("--kubeconfig", type=Path, metavar="FILE", help="a kubeconfig of its cluster ($KUBECONFIG)")
    group.add_argument("--team", help="whose namespace; may be left out where there is one team")
    return group


def _add_wishes(group: argparse._ArgumentGroup) -> argparse._ArgumentGroup:
    group.add_argument("--group", help="GPU node group; the cheapest that fits without it")
    group.add_argument("--priority", choices=("low", "normal", "high"), help="place in the queue; normal by default")
    group.add_argument("--deadline-hours", type=float, metavar="H", help="hours the job may take from its admission on")
    group.add_argument(
        "--restarts",
        type=int,
        metavar="N",
        help="times a failed driver is begun anew on a new cluster; 0",
    )
    group.add_argument("--keep-days", type=float, metavar="D", help="days the job stays listed after its end")
    return group


def _add_following(group: argparse._ArgumentGroup) -> None:
    _add_detach(group)
    group.add_argument(
        "--stop-on-interrupt", action="store_true", help="Ctrl-C stops the job; it goes on without this option"
    )


def _add_detach(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--detach", action="store_true", help="do not wait for the job")
