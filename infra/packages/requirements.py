"""Policy: what the requirements.txt of a code folder may say, and how it relates to the platform's packages.

Nothing that it asks for may change the version of a package of the platform: every release was tested with its lock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from infra.spec.errors import SettingsError

REQUIREMENTS_FILE = "requirements.txt"

CLIENTS: Mapping[str, str] = {"mlflow": "mlflow-skinny"}
"""Packages that are met by a smaller one with the same modules at the same version, which only lacks what a server needs."""

_COMMENT = re.compile(r"(^|\s)#.*$")  # as in pip: a comment begins the line or follows white space
_LOGIN = re.compile(r"//[^/@\s]+@")
_CONTINUED = re.compile(r"\\\n")
_INDEX = "set UV_DEFAULT_INDEX or UV_FIND_LINKS in your shell: an address may hold a login, and this file is kept with the run"
_NOT_FROM_AN_INDEX = (
    "an address or a path cannot be installed again from a hash; publish it in your package index, "
    "or copy a pure-Python package into the code folder"
)
_FLATTEN = "write its lines into this file"
_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("-r", "--requirement", "-c", "--constraint"), _FLATTEN),
    **dict.fromkeys(("-e", "--editable"), "leave it out: the code folder itself is on the import path"),
    **dict.fromkeys(("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--no-index"), _INDEX),
    "--hash": "leave it out: the platform resolves and records the hashes itself",
}
"""Remedy for each option of requirements files (pip's documentation, "Requirements File Format")."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The packages of an environment of the platform.

    Attributes:
        locked: version of each package of the platform's lock, by normalized name; nothing may change it.
        installed: the version of a package of the lock that the environment has; None if it lacks it.
    """

    locked: Mapping[str, str]
    installed: Callable[[str], str | None]

    def version(self, name: str) -> str | None:
        """The version that a package must have: the installed one, which may be another build, or else the locked one."""
        return self.installed(name) or self.locked.get(name)


class _Line(NamedTuple):
    """A logical line of the file; `number` is that of its first physical line, from 1."""

    number: int
    text: str


def read_requirements(folder: Path, *, environment: Mapping[str, str] | None = None) -> tuple[Requirement, ...]:
    """The requirements of a code folder; none if it has no requirements.txt. Those whose marker does not hold are left out.

    Args:
        folder: the code folder.
        environment: values of markers that differ from those of this Python, e.g. `{"sys_platform": "linux"}`.

    Raises:
        SettingsError: names every line that cannot be used, and why.
    """
    file = folder / REQUIREMENTS_FILE
    if not file.is_file():
        return ()
    found, problems = [], []
    for line in _lines(_text(file)):
        try:
            found.append(_requirement(line.text))
        except ValueError as error:
            problems.append(f"\n  line {line.number}: {_LOGIN.sub('//***@', line.text)}: {error}")
    if problems:
        raise SettingsError(
            f"{file} has lines that are not requirements from a package index:{''.join(problems)}",
            remedy="write one `name==version` per line, with `;` markers if needed",
        )
    values = dict(environment or {})
    return tuple(one for one in found if one.marker is None or one.marker.evaluate(values))


def missing_packages(folder: Path, requirements: Iterable[Requirement], platform: Platform) -> tuple[Requirement, ...]:
    """The requirements that the platform does not meet, but that do not contradict it.

    A requirement with extras counts as missing, because the lock does not say what an extra needs.

    Raises:
        SettingsError: names every requirement that asks for another version of a package of the platform.
    """
    required = sorted(requirements, key=str)
    conflicts = [
        f"\n  {requirement}: the platform has {version}"
        for requirement in required
        if (version := platform.version(canonicalize_name(requirement.name))) is not None
        and not _allows(requirement, version)
    ]
    if conflicts:
        raise SettingsError(
            f"{folder / REQUIREMENTS_FILE} contradicts the versions of this release:{''.join(conflicts)}",
            remedy="widen or remove these lines: the platform's packages keep the versions that it was tested with",
        )
    return tuple(one for one in required if one.extras or platform.installed(canonicalize_name(one.name)) is None)


def unmet(
    requirements: Iterable[Requirement],
    versions: Callable[[str], str | None],
    needs: Callable[[str], Iterable[str]] = lambda _: (),
) -> Iterator[str]:
    """What is wrong with each requirement that an environment does not meet, e.g. `timm>=1: not installed`.

    Args:
        requirements: the requirements.
        versions: version of a package by normalized name; None if it is not installed.
        needs: requirements of an installed package in the form of its metadata; without, extras are not looked at.
    """
    for requirement in sorted(requirements, key=str):
        name = canonicalize_name(requirement.name)
        version = versions(name)
        if version is None:
            yield f"{requirement}: not installed"
        elif not _allows(requirement, version):
            yield f"{requirement}: has {version}"
        elif requirement.extras:
            of_extras = list(_of_extras(map(Requirement, needs(name)), requirement.extras))
            yield from (f"{requirement}: {line}" for line in unmet(of_extras, versions, needs))


def _of_extras(requirements: Iterable[Requirement], extras: Iterable[str]) -> Iterator[Requirement]:
    """Those that hold for one of the extras only, without their markers."""
    for one in requirements:
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            continue
        if any(one.marker.evaluate({"extra": extra}) for extra in extras):
            one.marker = None
            yield one


def _allows(requirement: Requirement, version: str) -> bool:
    return requirement.specifier.contains(version, prereleases=True)


def _text(file: Path) -> str:
    content = file.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SettingsError(f"{file} is UTF-16, as PowerShell's `>` writes it", remedy="save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError(
            f"{file} is not UTF-8: byte {error.start}, in line {line}", remedy="save it as UTF-8"
        ) from error


def _lines(text: str) -> Iterator[_Line]:
    number = 1
    for logical in re.split(r"(?<!\\)\n", text.replace("\r\n", "\n")):
        line = _COMMENT.sub("", _CONTINUED.sub("", logical)).strip()
        if line:
            yield _Line(number, line)
        number += logical.count("\n") + 1


def _requirement(text: str) -> Requirement:
    """A line's requirement; raises ValueError with what to do instead."""
    option = next((word.partition("=")[0] for word in text.split() if word.startswith("-")), None)
    if option is not None:
        raise ValueError(_OPTIONS.get(option, f"option {option} is not supported; leave it out"))
    if "://" in text or text.startswith((".", "/", "~")) or text.endswith((".whl", ".tar.gz", ".zip")):
        raise ValueError(_NOT_FROM_AN_INDEX)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise ValueError(reason[0].lower() + reason[1:]) from error
    return requirement


def describe(requirements: Sequence[Requirement]) -> str:
    """Requirements in one line."""
    return ", ".join(map(str, requirements))
