"""The objects to copy, and the files that they become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from .errors import RefusedSyncError, WrongInputError

_SOURCE = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")
_DESTINATION = re.compile(r"datasets((?:/[A-Za-z0-9][A-Za-z0-9._-]{0,100})+)")
_LONGEST_NAME = 255
"""Bytes of a file's name; EFS's limit too (EFS user guide, "Quotas")."""

_SHOWN = 10


class RemoteObject(NamedTuple):
    """An object of the source.

    Attributes:
        key: its key.
        path: relative path of its file.
        size: in bytes.
        etag: entity tag, without quotes.
    """

    key: str
    path: str
    size: int
    etag: str

    @property
    def parts(self) -> int:
        """Number of parts that it was uploaded in; 0 if it was uploaded in one piece."""
        _, dash, count = self.etag.partition("-")
        return int(count) if dash and count.isdigit() else 0


def parse_source(text: str) -> tuple[str, str]:
    """Bucket and prefix of s3://BUCKET/PREFIX. The prefix is a folder: it is empty or ends with a slash.

    Raises:
        WrongInputError: another form.
    """
    found = _SOURCE.fullmatch(text)
    if found is None:
        raise WrongInputError(f"source {text!r} must be s3://BUCKET or s3://BUCKET/FOLDER")
    prefix = (found["prefix"] or "").rstrip("/")
    return found["bucket"], f"{prefix}/" if prefix else ""


def parse_destination(text: str) -> str:
    """The path below the datasets' root of datasets/NAME[/NAME…].

    Raises:
        WrongInputError: another form, e.g. with `..`.
    """
    found = _DESTINATION.fullmatch(text.rstrip("/"))
    if found is None:
        raise WrongInputError(
            f"destination {text!r} must be datasets/NAME or a folder in it; names begin with a letter or digit and have "
            "letters, digits and . _ - only"
        )
    return found[1].removeprefix("/")


def list_objects(
    client: Any,  # noqa: ANN401 - boto3 makes its classes at run time
    bucket: str,
    prefix: str,
    *,
    source: str,
) -> list[RemoteObject]:
    """Every object below the prefix. Keys that end with a slash, which consoles create for folders, are left out.

    Raises:
        RefusedSyncError: there are none, or some cannot be files below one folder.
    """
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    objects = [
        RemoteObject(entry["Key"], entry["Key"].removeprefix(prefix), entry["Size"], entry["ETag"].strip('"'))
        for page in pages
        for entry in page.get("Contents", ())
        if not (entry["Key"].endswith("/") and entry["Size"] == 0)
    ]
    if not objects:
        raise RefusedSyncError(f"{source} has no objects")
    refuse("cannot be files", (f"{one.key!r}: {why}" for one in objects if (why := why_not_a_file(one.path))))
    refuse("would be both a file and a folder", _clashes(objects))
    return objects


def why_not_a_file(path: str) -> str:
    """Why a relative path names no file below its folder; empty if it does."""
    names = path.split("/")
    if "" in names:
        return "has an empty name"
    if "." in names or ".." in names:
        return "has . or .. as a name"
    if "\0" in path:
        return "has a NUL character"
    if any(len(name.encode()) > _LONGEST_NAME for name in names):
        return f"has a name of more than {_LONGEST_NAME} bytes"
    return ""


def folders_of(paths: Iterable[str]) -> set[str]:
    """All folders that hold one of these files, the root `.` left out."""
    found = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    return found - {"."}


def refuse(rule: str, lines: Iterable[str]) -> None:
    """Refuse a source of which some objects break a rule; names the first ones.

    Raises:
        RefusedSyncError: there are such objects.
    """
    found = list(lines)
    if found:
        more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        shown = "".join(f"\n  {line}" for line in found[:_SHOWN])
        raise RefusedSyncError(f"{len(found)} objects {rule}:{shown}{more}")


def _clashes(objects: Sequence[RemoteObject]) -> Iterator[str]:
    paths = Counter(one.path for one in objects)
    yield from sorted(repr(path) for path in folders_of(paths) & set(paths))
