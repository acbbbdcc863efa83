"""The page of environment variables, and `.env.example`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from infra.spec.variables.internal import INTERNAL
from infra.spec.variables.libraries import LIBRARIES
from infra.spec.variables.users import USERS
from infra.spec.variables.variable import Variable
from tests.reference.markdown import code, page, section, sentence, table

_WIDTH = 118


def variables_page() -> str:
    """The page of the environment variables."""
    return page(
        "Environment variables",
        "Every variable that the platform reads or sets, with the packages and files that use it. `.env.example` has those of the "
        "first part for a shell.",
        _part("For users", USERS, ("variable", "meaning", "default", "of", "used by")),
        _part("Of the platform's own processes", INTERNAL, ("variable", "meaning", "default", "of", "used by")),
        section(
            "Of other software",
            "The platform sets these, or reads what others have set. Where `kept` says yes, a value that is there already wins.",
            *_tables(LIBRARIES, ("variable", "meaning", "value", "of", "used by", "kept")),
        ),
    )


def env_example() -> str:
    """The text of `.env.example`."""
    lines = [
        "# Every environment variable that you may set; docs/reference/environment-variables.md lists all others.",
        "# Copy this file to .env, remove the # before what you set, and load it before a command:  set -a; . ./.env; set +a",
        "# The values here are the defaults; a value that depends on the machine is described instead.",
        "# Written by `make reference` from infra/spec/variables/.",
    ]
    for title, group in USERS.items():
        lines += ["", f"## {title}"]
        for one in group:
            words = one.value.startswith("(")
            default = f" Default: {one.value.strip('()')}." if words else ""
            text = sentence(one.meaning) + default
            lines += [
                "",
                *(f"# {line}" for line in textwrap.wrap(text, _WIDTH)),
                f"#{one.name}={'' if words else one.value}",
            ]
    return "\n".join(lines) + "\n"


def _part(title: str, groups: Mapping[str, Iterable[Variable]], head: tuple[str, ...]) -> str:
    return section(title, *_tables(groups, head))


def _tables(groups: Mapping[str, Iterable[Variable]], head: tuple[str, ...]) -> list[str]:
    return [
        section(title, table(head, (_row(one)[: len(head)] for one in group)), level=3)
        for title, group in groups.items()
    ]


def _row(one: Variable) -> tuple[str, ...]:
    value = one.value if one.value.startswith("(") else code(one.value)
    used_by = ", ".join(map(code, one.used_by))
    return (
        code(one.name),
        sentence(one.meaning),
        value.strip("()"),
        one.library,
        used_by,
        "yes" if one.is_kept else "no",
    )
