"""Tables of options, from argparse."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping

from tests.reference.markdown import code, table

_HEAD = ("option", "meaning", "value", "default")
_HELP = "help"


def options_table(actions: Iterable[argparse.Action]) -> str:
    """The options and arguments of a parser, without `--help`; empty if there are none."""
    return table(_HEAD, (_row(action) for action in actions if action.dest not in {_HELP, argparse.SUPPRESS}))


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The options and arguments of a parser by destination, without `--help`."""
    return {action.dest: action for action in parser._actions if action.dest != _HELP}


def subparsers(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The parsers of a program's commands, by name; empty if it has none."""
    found = [action for action in actions_of(parser).values() if isinstance(action, argparse._SubParsersAction)]
    return found[0].choices if found else {}


def help_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """What a program's help says of each of its commands."""
    for action in actions_of(parser).values():
        if isinstance(action, argparse._SubParsersAction):
            yield from ((one.dest, one.help or "") for one in action._get_subactions())


def _row(action: argparse.Action) -> tuple[str, ...]:
    name = ", ".join(map(code, action.option_strings)) or code(action.dest)
    return (name, (action.help or "").replace("%%", "%"), _value(action), _default(action))


def _value(action: argparse.Action) -> str:
    """What the option takes, and whether it must be given."""
    notes = []
    if action.choices is not None:
        notes.append(", ".join(code(one) for one in action.choices))
    elif action.nargs != 0 and (kind := getattr(action.type, "__name__", "text")):
        metavars = [action.metavar] if isinstance(action.metavar, str) else list(action.metavar or ())
        kinds = {"int": "integer", "float": "number", "Path": "path"}
        notes.append(" ".join(map(code, metavars)) or kinds.get(kind, "text"))
    if rule := getattr(action.type, "rule", ""):
        notes.append(rule)
    if action.nargs in {"+", "*"}:
        notes.append("several")
    if action.required and action.option_strings:
        notes.append("required")
    return ", ".join(notes)


def _default(action: argparse.Action) -> str:
    if action.default in (None, False, argparse.SUPPRESS) or action.default == [] or "default" in (action.help or ""):
        return ""
    if isinstance(action.default, list | tuple):
        return code(" ".join(map(str, action.default)))
    return code(action.default)
