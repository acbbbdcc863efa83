"""A command line made of typed functions; `python -m training` and `python -m infra.lifecycle` are one `CommandLine` each.

A command is a function whose only parameter is a dataclass of options; the fields define flag, type, default and help. A command imports
its implementation in its body, so help and usage errors are fast. argparse takes 9 ms to import; typer takes 54, and 120 more to print
help. Shell completion uses argcomplete, which is imported only while the shell completes, and works after `python -m` too.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from infra.spec import output
from infra.spec.errors import ExitStatus, PlatformError

Options = TypeVar("Options")
_SPEC: Final = "option"
_CHOSEN: Final = "chosen command"
_INDENT: Final = "  "
_GLOBAL_COMPLETION: Final = ".venv/bin/activate-global-python-argcomplete"


class _Spec(NamedTuple):
    """The properties of an option that its field's type does not define."""

    summary: str
    metavar: str | None
    is_positional: bool
    at_least: float | None = None
    at_most: float | None = None


def option(
    summary: str,
    default: object = None,
    *,
    default_factory: Callable[[], object] | None = None,
    metavar: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Any:  # noqa: ANN401 - a field of any type, like dataclasses.field
    """Declare a field as the option `--field-name`; an underscore at the end of the name, as in `from_`, is left out.

    A bool is a switch, `bool | None` adds a `--no-…` form, a tuple is a repeatable option, a Literal limits the choices.

    Args:
        summary: text in `--help`.
        default: default value; `...` makes the option required.
        default_factory: creates the default when the command line is parsed.
        metavar: name of the value in `--help`.
        at_least: smallest number that the option takes; a number with a bound is finite.
        at_most: largest number.
    """
    metadata = {_SPEC: _Spec(summary, metavar, is_positional=False, at_least=at_least, at_most=at_most)}
    if default_factory is not None:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=MISSING if default is ... else default, metadata=metadata)


def argument(summary: str, default: object = None) -> Any:  # noqa: ANN401 - as above
    """Declare a field as an optional positional argument; a tuple takes any number of them."""
    return field(default=default, metadata={_SPEC: _Spec(summary, None, is_positional=True)})


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """A command without options."""


class Command(NamedTuple):
    """A command: its function, the class of its options, and its heading in `--help`."""

    name: str
    summary: str
    heading: str
    options: type[Any]
    run: Callable[[Any], int]


class CommandLine:
    """All commands of a program.

    Args:
        program: how the program is invoked.
        summary: one-line description.
        variables: description of every environment variable that the commands read, by name.
        completion: what a shell runs to complete the program's commands.
        groups: other command lines, by the word that precedes their commands.
        version: "package.module:function" of what `--version` prints; None if there is no such option.
    """

    def __init__(
        self,
        program: str,
        summary: str,
        *,
        variables: Mapping[str, str],
        completion: str = _GLOBAL_COMPLETION,
        groups: Mapping[str, CommandLine] = MappingProxyType({}),
        version: str | None = None,
    ) -> None:
        self.program = program
        self.summary = summary
        self.variables = variables
        self._completion = completion
        self._groups = groups
        self._version = version
        self._commands: dict[str, Command] = {}

    def script(self, name: str, *, groups: Mapping[str, CommandLine]) -> CommandLine:
        """A program on PATH with the commands registered so far.

        Args:
            name: how it is invoked.
            groups: as of the constructor.
        """
        made = CommandLine(
            name,
            self.summary,
            variables={key: text for one in (self, *groups.values()) for key, text in one.variables.items()},
            completion=f'eval "$(register-python-argcomplete {name.partition(" ")[0]})"',
            groups={word: group.script(f"{name} {word}", groups={}) for word, group in groups.items()},
            version=self._version,
        )
        made._commands.update(self._commands)
        return made

    def command(self, heading: str) -> Callable[[Callable[[Options], int]], Callable[[Options], int]]:
        """Register a function as a command; name, docstring and parameter type become name, help and options.

        An underscore at the end of the name, as in `open_`, is left out.
        """

        def register(run: Callable[[Options], int]) -> Callable[[Options], int]:
            name = run.__name__.rstrip("_").replace("_", "-")
            summary = (run.__doc__ or "").partition("\n")[0]
            hints = get_type_hints(run)
            self._commands[name] = Command(name, summary, heading, hints[run.__code__.co_varnames[0]], run)
            return run

        return register

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run a command.

        Args:
            arguments: the command line; None for `sys.argv`.

        Returns:
            the exit status of the process, see `ExitStatus`.
        """
        output.use_plain_characters()
        parser = self.parser()
        if "_ARGCOMPLETE" in os.environ:  # the shell requests completions
            import argcomplete

            argcomplete.autocomplete(parser)
        parsed = vars(parser.parse_args(arguments))
        command: Command = parsed.pop(_CHOSEN)
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in parsed.items()}
        try:
            return command.run(command.options(**values))
        except PlatformError as error:
            print_error(error)
            return error.status
        except KeyboardInterrupt:
            return ExitStatus.INTERRUPTED
        except BrokenPipeError:  # the reader of the pipe, e.g. `head`, has exited
            output.discard(sys.stdout)
            return ExitStatus.DONE

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands, in the order in which they were registered."""
        return tuple(self._commands.values())

    def parser(self) -> argparse.ArgumentParser:
        """The parser of the whole command line, with a subparser for each command."""
        parser = argparse.ArgumentParser(prog=self.program)
        if self._version is not None:
            parser.add_argument("--version", action=_Version, const=self._version)
        self.add_to(parser)
        return parser

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add the commands and their description to a parser."""
        parser.usage = "%(prog)s [-h] COMMAND [options]"
        parser.description = self.summary
        parser.epilog = "\n".join(self._epilog())
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        commands = parser.add_subparsers(prog=self.program, required=True, metavar="COMMAND")
        commands.help = argparse.SUPPRESS  # the epilog lists them by heading
        for command in self._commands.values():
            of_command = commands.add_parser(command.name, description=command.summary)
            of_command.set_defaults(**{_CHOSEN: command})
            _add_options(of_command, command.options)
        for word, group in self._groups.items():
            group.add_to(commands.add_parser(word))

    def _epilog(self) -> Iterator[str]:
        width = max(map(len, (*self._commands, *self._groups, *self.variables)))
        headings = dict.fromkeys(command.heading for command in self._commands.values())
        for heading in headings:
            yield f"{heading}:"
            for command in self._commands.values():
                if command.heading == heading:
                    yield f"{_INDENT}{command.name:{width}}{_INDENT}{command.summary}"
            yield ""
        if self._groups:
            yield "groups of commands:"
            yield from (f"{_INDENT}{word:{width}}{_INDENT}{group.summary}" for word, group in self._groups.items())
            yield ""
        yield "environment variables:"
        yield from (f"{_INDENT}{name:{width}}{_INDENT}{meaning}" for name, meaning in self.variables.items())
        yield ""
        yield f"{self.program} COMMAND --help lists the options of a command."
        if self._version is not None:
            yield f"{self.program} --version tells the versions of the platform, Python and torch, and the devices."
        yield "Exit status: 0 success, 1 failure, 2 invalid input or settings, 3 refused by a check, 130 interrupted."
        yield f"To enable completion in bash and zsh, run {self._completion}."


class _Version(argparse.Action):
    """Prints what a function returns, whose module is imported only then, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, const: str) -> None:
        super().__init__(option_strings, dest, nargs=0, const=const, help=argparse.SUPPRESS, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        module, function = str(self.const).split(":")
        print(getattr(import_module(module), function)())
        parser.exit()


def print_error(error: PlatformError) -> None:
    """Print an error after what was printed before it; to nobody if the pipe or the terminal is closed."""
    try:
        sys.stdout.flush()
    except OSError:
        output.discard(sys.stdout)
    try:
        print(f"error: {error}", file=sys.stderr)
    except OSError:
        output.discard(sys.stderr)


def _add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """Add an argument to the parser for every field, grouped by the `TITLE` of the class that declares it."""
    hints = get_type_hints(options)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for one in fields(options):
        title = _title(options, one.name)
        if title and title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_option(groups.get(title, parser), one, hints[one.name])


def declaring_class(options: type[Any], name: str) -> type[Any]:
    """The class, of a command's options and its bases, that declares an option."""
    return next(one for one in reversed(options.__mro__) if name in get_annotations(one))


def _title(options: type[Any], name: str) -> str:
    return str(declaring_class(options, name).__dict__.get("TITLE", ""))


def _add_option(parser: argparse._ActionsContainer, one: Field[Any], hint: object) -> None:
    spec: _Spec = one.metadata[_SPEC]
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    kind = _kind(hint)
    keywords: dict[str, Any] = {"help": spec.summary.replace("%", "%%"), "metavar": spec.metavar}
    if spec.is_positional:
        nargs = "*" if get_origin(hint) is tuple else "?"
        parser.add_argument(one.name, nargs=nargs, **_keywords_of(kind, spec), **keywords)
        return
    flag = _flag(one.name)
    keywords["dest"] = one.name
    if hint is bool:
        parser.add_argument(flag, action="store_true", dest=one.name, help=keywords["help"])
    elif kind is bool:
        action = argparse.BooleanOptionalAction
        parser.add_argument(flag, action=action, default=default, dest=one.name, help=keywords["help"])
    elif get_origin(hint) is tuple:
        parser.add_argument(flag, action="append", default=[], **keywords)
    elif default is MISSING:
        parser.add_argument(flag, required=True, **_keywords_of(kind, spec), **keywords)
    else:
        parser.add_argument(flag, default=default, **_keywords_of(kind, spec), **keywords)


def _kind(hint: object) -> object:
    """The type of a given value: `int` for `int | None`."""
    if get_origin(hint) in {Union, UnionType}:
        [kind] = [member for member in get_args(hint) if member is not NoneType]
        return kind
    return hint


def _keywords_of(kind: object, spec: _Spec) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if kind is int or kind is float:
        return {"type": Number(kind, at_least=spec.at_least, at_most=spec.at_most)}
    return {"type": kind} if kind is Path else {}


class Number:
    """Parses an argument of `argparse` as a number, and refuses one outside its bounds; `rule` says what they are."""

    def __init__(self, kind: type[int | float], *, at_least: float | None = None, at_most: float | None = None) -> None:
        self._kind = kind
        self._low = -math.inf if at_least is None else at_least
        self._high = math.inf if at_most is None else at_most
        bounds = {"at least": at_least, "at most": at_most}
        self.rule = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)
        self.__name__ = kind.__name__  # argparse's message: invalid int value

    def __call__(self, text: str) -> int | float:
        """The number.

        Raises:
            ValueError: not a number.
            argparse.ArgumentTypeError: out of bounds.
        """
        value = self._kind(text)
        if self.rule and not (math.isfinite(value) and self._low <= value <= self._high):
            raise argparse.ArgumentTypeError(f"must be {self.rule}, not {text}")
        return value


def _flag(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


def given_flags(options: object, title: str) -> list[str]:
    """The flags of a group of options that differ from their defaults; an argument without a flag is none.

    Args:
        options: a command's options.
        title: the `TITLE` of the classes that declare the group.
    """
    assert is_dataclass(options)
    declared = (one for one in fields(options) if _title(type(options), one.name) == title)
    changed = (one for one in declared if getattr(options, one.name) != one.default)
    return [_flag(one.name) for one in changed if not one.metadata[_SPEC].is_positional]
