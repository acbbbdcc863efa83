"""What can be said of a command without running it: its target, variables, options, settings and files exist."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import takewhile

import boto3
from botocore import xform_name
from botocore.exceptions import UnknownServiceError
from pydantic import ValidationError

from tests.docs.commands.found import ROOT
from tests.docs.commands.needs import Words, is_example, parse
from tests.docs.make_commands import problems_of
from tests.docs.settings import check_setting
from tests.makefile import command as planned
from tests.reference.programs import BENCHMARKS, COMMAND_LINES, IMAGES, TOOLS, command_line

SHIPPED_SETTINGS = ROOT / "training" / "configs"
_PROGRAMS = {program.module: program for program in (*BENCHMARKS, *TOOLS, *IMAGES)}


def problems(text: str) -> Iterator[str]:
    """What is wrong with a command."""
    yield from [*_syntax(text)] or _of_words(parse(text))


def _of_words(words: Words) -> Iterator[str]:
    if words.program == "make":
        yield from [*problems_of(shlex.join(["make", *words.arguments]))] or _options_of_target(words)
        yield from _settings(words)
    elif module := _module(words.program):
        yield from _options(module, words.arguments)
    elif words.program.startswith((".ci/", ".venv/bin/")) and not (ROOT / words.program).is_file():
        yield f"no file {words.program}"
    elif words.program == "aws":
        yield from _aws(words.arguments)


def _syntax(text: str) -> Iterator[str]:
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if checked.returncode:
        yield checked.stderr.strip()


def _options_of_target(words: Words) -> Iterator[str]:
    """What is wrong with the options that make gives the program."""
    match planned(*(word for word in words.arguments if word != "…")):
        case ["-m", program, *arguments] if module := _module(program):
            yield from _options(module, arguments)


def _module(program: str) -> str | None:
    """The module that a program is; None if it is another program than Python."""
    return program if "." in program.strip(".") or program in COMMAND_LINES else None


def _options(module: str, arguments: Sequence[str]) -> Iterator[str]:
    if not arguments and module in COMMAND_LINES:
        return  # its default
    if module in COMMAND_LINES:
        parser = command_line(module).parser()
    elif module in _PROGRAMS:
        parser = _PROGRAMS[module].make()
    else:
        if not _exists(module):
            yield f"no module {module}"
        return
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            parser.parse_args(arguments)
        except SystemExit as ended:
            if ended.code:
                yield said.getvalue().strip().splitlines()[-1]


@cache
def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _settings(words: Words) -> Iterator[str]:
    """What is wrong with the settings of `SET` and the name in `CONFIG`."""
    for setting in shlex.split(words.variables.get("SET", "")):
        key, _, value = setting.partition("=")
        if not key.startswith("search.") and "…" not in setting:
            try:
                check_setting(key, None if is_example(value) else value)
            except (AssertionError, ValidationError) as error:
                yield f"{setting}: {error}"
    config = words.variables.get("CONFIG", "")
    if config and not config.endswith(".yaml") and not (SHIPPED_SETTINGS / f"{config}.yaml").is_file():
        yield f"no configuration {config}"


def _aws(arguments: Sequence[str]) -> Iterator[str]:
    """What is wrong with the first command of the AWS CLI, which makes its commands of the same models as boto3."""
    service, operation, *options = takewhile(lambda word: word != "|", arguments)
    try:
        client = boto3.client("s3" if service == "s3api" else service, region_name="us-east-1")
    except UnknownServiceError:
        yield f"the AWS CLI has no service {service}"
        return
    if operation == "wait":
        if options[0].replace("-", "_") not in client.waiter_names:
            yield f"{service} has no waiter {options[0]}"
        return
    meta = client.meta
    name = meta.method_to_api_mapping.get(operation.replace("-", "_"))
    if name is None:
        yield f"{service} has no operation {operation}"
        return
    members = meta.service_model.operation_model(name).input_shape.members
    known = {xform_name(member, "-"): shape.type_name for member, shape in members.items()}
    for option in (word.removeprefix("--") for word in options if word.startswith("--")):
        if (
            option not in {*known, "query", "output", "max-items"}
            and known.get(option.removeprefix("no-")) != "boolean"
        ):
            yield f"{service} {operation} has no option --{option}"
