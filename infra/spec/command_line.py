"""A command line as typed functions: `python -m training` and `python -m infra.lifecycle` are each one `CommandLine`.

A command is a function of one dataclass of options, whose fields say flag, type, default and help. What a command needs beside its options
it imports in its body, so help and refusals come at once. argparse takes 9 ms to import; typer takes 54, and 120 more to print its help.
Shell completion is argcomplete's, which is imported only for the shell, and completes after `python -m` too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from infra.spec.errors import ExitStatus, PlatformError

Options = TypeVar("Options")
_SPEC: Final = "option"
_INDENT: Final = "  "


class _Spec(NamedTuple):
    """What the type of a field does not say of its option."""

    summary: str
    metavar: str | None
    is_positional: bool


def option(
    summary: str,
    default: object = None,
    *,
    default_factory: Callable[[], object] | None = None,
    metavar: str | None = None,
) -> Any:  # noqa: ANN401 - it stands for a field of any type, as dataclasses.field does
    """A field that `--its-name` sets. The field's type decides the rest.

    A bool is a switch, `bool | None` one with a `--no-…` form, a tuple may be given several times, a Literal is one of its values.

    Args:
        summary: for `--help`.
        default: value where the option is not given; `...` makes it required.
        default_factory: makes that value when the command line is read.
        metavar: how `--help` calls the value.
    """
    metadata = {_SPEC: _Spec(summary, metavar, is_positional=False)}
    if default_factory is not None:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=MISSING if default is ... else default, metadata=metadata)


def argument(summary: str) -> Any:  # noqa: ANN401 - as above
    """A field that a word without a flag sets; it may be left out."""
    return field(default=None, metadata={_SPEC: _Spec(summary, None, is_positional=True)})


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """A command without options."""


class _Command(NamedTuple):
    """A command: the function, its options, and under which heading `--help` lists it."""

    name: str
    summary: str
    heading: str
    options: type[Any]
    run: Callable[[Any], int]


class CommandLine:
    """All commands of a program.

    Args:
        program: what one types to start it.
        summary: one line for people.
        variables: meaning of every environment variable that the commands read, by name.
    """

    def __init__(self, program: str, summary: str, *, variables: Mapping[str, str]) -> None:
        self._program = program
        self._summary = summary
        self._variables = variables
        self._commands: dict[str, _Command] = {}

    def command(self, heading: str) -> Callable[[Callable[[Options], int]], Callable[[Options], int]]:
        """Make a function a command: its name, its docstring and the type of its only parameter say the rest."""

        def register(run: Callable[[Options], int]) -> Callable[[Options], int]:
            name = run.__name__.replace("_", "-")
            summary = (run.__doc__ or "").partition("\n")[0]
            hints = get_type_hints(run)
            self._commands[name] = _Command(name, summary, heading, hints[run.__code__.co_varnames[0]], run)
            return run

        return register

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run a command.

        Args:
            arguments: the command line; None takes the process's own.

        Returns:
            the exit status of the process, see `ExitStatus`.
        """
        parser = self._parser()
        if "_ARGCOMPLETE" in os.environ:  # the shell asks what may come next
            import argcomplete

            argcomplete.autocomplete(parser)
        parsed = vars(parser.parse_args(arguments))
        command = self._commands[parsed.pop("command")]
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in parsed.items()}
        try:
            return command.run(command.options(**values))
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

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=self._program,
            usage="%(prog)s [-h] COMMAND [options]",
            description=self._summary,
            epilog="\n".join(self._epilog()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        commands = parser.add_subparsers(prog=self._program, dest="command", required=True, metavar="COMMAND")
        commands.help = argparse.SUPPRESS  # the epilog lists them by heading
        for command in self._commands.values():
            _add_options(commands.add_parser(command.name, description=command.summary), command.options)
        return parser

    def _epilog(self) -> Iterator[str]:
        width = max(map(len, (*self._commands, *self._variables)))
        headings = dict.fromkeys(command.heading for command in self._commands.values())
        for heading in headings:
            yield f"{heading}:"
            for command in self._commands.values():
                if command.heading == heading:
                    yield f"{_INDENT}{command.name:{width}}{_INDENT}{command.summary}"
            yield ""
        yield "environment variables:"
        yield from (f"{_INDENT}{name:{width}}{_INDENT}{meaning}" for name, meaning in self._variables.items())
        yield ""
        yield f"{self._program} COMMAND --help lists the options of a command."
        yield "Exit status: 0 done, 1 failed, 2 wrong input or settings, 3 refused by a guard or preflight, 130 interrupted."
        yield "Shell completion: .venv/bin/activate-global-python-argcomplete sets it up for bash and zsh."


def _add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """Give a command's parser an argument for every field, in groups by the classes whose `TITLE` says so."""
    hints = get_type_hints(options)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for one in fields(options):
        title = _title(options, one.name)
        if title and title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_option(groups.get(title, parser), one, hints[one.name])


def _title(options: type[Any], name: str) -> str:
    owner = next(one for one in reversed(options.__mro__) if name in get_annotations(one))
    return str(owner.__dict__.get("TITLE", ""))


def _add_option(parser: argparse._ActionsContainer, one: Field[Any], hint: object) -> None:
    spec: _Spec = one.metadata[_SPEC]
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    kind = _kind(hint)
    keywords: dict[str, Any] = {"help": spec.summary.replace("%", "%%"), "metavar": spec.metavar}
    if spec.is_positional:
        parser.add_argument(one.name, nargs="?", **_keywords_of(kind), **keywords)
        return
    flag = f"--{one.name.replace('_', '-')}"
    if hint is bool:
        parser.add_argument(flag, action="store_true", help=keywords["help"])
    elif kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=keywords["help"])
    elif get_origin(hint) is tuple:
        parser.add_argument(flag, action="append", default=[], **keywords)
    elif default is MISSING:
        parser.add_argument(flag, required=True, **_keywords_of(kind), **keywords)
    else:
        parser.add_argument(flag, default=default, **_keywords_of(kind), **keywords)


def _kind(hint: object) -> object:
    """The type of a value that is given: `int` of `int | None`."""
    if get_origin(hint) in {Union, UnionType}:
        [kind] = [member for member in get_args(hint) if member is not NoneType]
        return kind
    return hint


def _keywords_of(kind: object) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    return {"type": kind} if kind in {int, float, Path} else {}
