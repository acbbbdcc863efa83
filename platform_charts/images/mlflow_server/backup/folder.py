"""The backups in the bucket: one folder each, complete once it has a manifest."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from ..names import BACKUP_FOLDER
from .errors import DamagedError, RefusedError
from .manifest import MANIFEST_FILE, Manifest, StoredFile

_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})


class BackupFolder:
    """The files of one backup.

    Args:
        s3: client of S3.
        bucket: the artifact bucket.
        identifier: name of the backup.
    """

    def __init__(self, s3: Any, bucket: str, identifier: str) -> None:  # noqa: ANN401 - boto3 has no types
        self._s3 = s3
        self._bucket = bucket
        self.identifier = identifier

    def put(self, file: Path, name: str) -> StoredFile:
        """Upload a file; S3 verifies its checksum."""
        stored = StoredFile(name=name, bytes=file.stat().st_size, sha256=sha256_of(file))
        self._s3.upload_file(str(file), self._bucket, self._key(name), ExtraArgs={"ChecksumAlgorithm": "SHA256"})
        return stored

    def get(self, stored: StoredFile, file: Path) -> None:
        """Download a file.

        Raises:
            DamagedError: it is missing, or is not what was stored.
        """
        try:
            self._s3.download_file(self._bucket, self._key(stored.name), str(file))
        except ClientError as error:
            if error.response["Error"]["Code"] in _ABSENT:
                raise DamagedError(f"{stored.name} is missing") from error
            raise
        if (size := file.stat().st_size) != stored.bytes:
            raise DamagedError(f"{stored.name} has {size} bytes instead of {stored.bytes}")
        if sha256_of(file) != stored.sha256:
            raise DamagedError(f"{stored.name} does not match its sha256")

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest, which completes the backup."""
        self._s3.put_object(
            Bucket=self._bucket, Key=self._key(MANIFEST_FILE), Body=manifest.encode(), ChecksumAlgorithm="SHA256"
        )

    def manifest(self) -> Manifest | None:
        """The manifest; None if the backup is not complete.

        Raises:
            DamagedError: it cannot be read, or is that of another backup.
        """
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=self._key(MANIFEST_FILE))
        except ClientError as error:
            if error.response["Error"]["Code"] in _ABSENT:
                return None
            raise
        try:
            manifest = Manifest.decode(answer["Body"].read())
        except DamagedError as error:
            raise DamagedError(
                f"backup {self.identifier} is damaged: {error}; restore another one: BACKUP=…"
            ) from error
        if manifest.identifier != self.identifier:
            raise DamagedError(f"backup {self.identifier} is damaged: its manifest is that of {manifest.identifier}")
        return manifest

    def _key(self, name: str) -> str:
        return f"{BACKUP_FOLDER}/{self.identifier}/{name}"


class Backups:
    """All backups of a bucket.

    Args:
        s3: client of S3.
        bucket: the artifact bucket.
    """

    def __init__(self, s3: Any, bucket: str) -> None:  # noqa: ANN401
        self._s3 = s3
        self._bucket = bucket

    def new(self, now: datetime) -> BackupFolder:
        """A folder for a new backup. Its name begins with the time, and no other backup has it."""
        return self._folder(f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}")

    def open(self, identifier: str) -> tuple[BackupFolder, Manifest]:
        """A backup by its name.

        Raises:
            RefusedError: there is none of that name, or it is not complete.
            DamagedError: its manifest cannot be read.
        """
        folder = self._folder(identifier)
        manifest = folder.manifest()
        if manifest is None:
            known = ", ".join(self.identifiers()[-5:]) or "none"
            raise RefusedError(f"there is no complete backup {identifier!r}; the newest folders: {known}")
        return folder, manifest

    def newest(self) -> tuple[BackupFolder, Manifest, list[str]]:
        """The newest complete backup, and the names of newer folders that are not complete.

        Raises:
            RefusedError: there is none.
            DamagedError: its manifest cannot be read.
        """
        incomplete: list[str] = []
        for identifier in reversed(self.identifiers()):
            folder = self._folder(identifier)
            manifest = folder.manifest()
            if manifest is not None:
                return folder, manifest, incomplete
            incomplete.append(identifier)
        raise RefusedError(
            f"there is no complete backup in s3://{self._bucket}/{BACKUP_FOLDER}/; make one first: make backup ENV=…"
        )

    def identifiers(self) -> list[str]:
        """Names of all folders, the oldest first."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{BACKUP_FOLDER}/", Delimiter="/"
        )
        prefixes = (entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ()))
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes)

    def _folder(self, identifier: str) -> BackupFolder:
        return BackupFolder(self._s3, self._bucket, identifier)


def sha256_of(file: Path) -> str:
    """The sha256 of a file in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
