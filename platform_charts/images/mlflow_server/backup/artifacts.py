"""The list of artifact versions, and whether they can still be read.

The bucket is versioned, so a backup copies no artifact: it records which version of each was current. An artifact that is overwritten or
deleted stays readable as that version for the days of `storage.noncurrent_days`, and no backup is kept longer than that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ..names import ARTIFACT_FOLDER
from .lines import Line
from .report import Problems

_CHUNK = 2**20


@dataclass(frozen=True, kw_only=True)
class ArtifactCheck:
    """Outcome of a check.

    Attributes:
        listed: versions that were looked up.
        read: versions that were read to the end.
        read_bytes: their size.
    """

    listed: int
    read: int
    read_bytes: int


def current_versions(s3: Any, bucket: str) -> Iterator[Line]:  # noqa: ANN401 - boto3 has no types
    """The current version of each artifact, by key in S3's order."""
    return (version for version, is_latest in _versions(s3, bucket) if is_latest)


def check_artifacts(
    s3: Any,  # noqa: ANN401
    bucket: str,
    wanted: Iterable[Line],
    problems: Problems,
    *,
    sample: int,
) -> ArtifactCheck:
    """Look every version up, and read a random sample of those that are there to the end.

    Args:
        s3: client of S3.
        bucket: the artifact bucket.
        wanted: versions, in the order of `current_versions`.
        problems: gets a sentence for each version that is not as it was.
        sample: number of versions to read.
    """
    listed, there, chosen = 0, 0, list[Line]()
    found = groupby((version for version, _ in _versions(s3, bucket)), itemgetter("key"))
    for line, versions in _paired(wanted, found):
        listed += 1
        if problem := _difference(line, versions):
            problems.add(problem)
            continue
        there += 1
        if len(chosen) < sample:
            chosen.append(line)
        elif sample and (place := random.randrange(there)) < sample:  # noqa: S311 - reservoir sampling, no secret
            chosen[place] = line
    for line in chosen:
        if problem := _unreadable(s3, bucket, line):
            problems.add(problem)
    return ArtifactCheck(listed=listed, read=len(chosen), read_bytes=sum(line["bytes"] for line in chosen))


def _versions(s3: Any, bucket: str) -> Iterator[tuple[Line, bool]]:  # noqa: ANN401
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=f"{ARTIFACT_FOLDER}/")
    for page in pages:
        for entry in page.get("Versions", ()):
            line = {
                "key": entry["Key"],
                "version": entry["VersionId"],
                "bytes": entry["Size"],
                "etag": entry["ETag"].strip('"'),
            }
            yield line, entry["IsLatest"]


def _paired(
    wanted: Iterable[Line], found: Iterator[tuple[str, Iterator[Line]]]
) -> Iterator[tuple[Line, dict[str, Line]]]:
    """Each wanted version with the versions of its key that the bucket has; both inputs are in S3's order, by UTF-8."""
    key, versions = next(found, (None, iter(())))
    for line in wanted:
        while key is not None and key.encode() < line["key"].encode():
            key, versions = next(found, (None, iter(())))
        yield line, {one["version"]: one for one in versions} if key == line["key"] else {}


def _difference(line: Line, versions: dict[str, Line]) -> str | None:
    name = f"artifact {line['key']}, version {line['version']}"
    found = versions.get(line["version"])
    if found is None:
        return f"{name}: deleted"
    if found != line:
        return (
            f"{name}: {found['bytes']} bytes with ETag {found['etag']} instead of {line['bytes']} with {line['etag']}"
        )
    return None


def _unreadable(s3: Any, bucket: str, line: Line) -> str | None:  # noqa: ANN401
    """Why a version cannot be read; the client compares the checksum that S3 has of it, if it has one."""
    try:
        answer = s3.get_object(Bucket=bucket, Key=line["key"], VersionId=line["version"], ChecksumMode="ENABLED")
        size = sum(len(chunk) for chunk in answer["Body"].iter_chunks(_CHUNK))
    except (BotoCoreError, ClientError) as error:
        return f"artifact {line['key']}, version {line['version']}: cannot be read: {error}"
    return (
        None if size == line["bytes"] else f"artifact {line['key']}: {size} bytes were read instead of {line['bytes']}"
    )
