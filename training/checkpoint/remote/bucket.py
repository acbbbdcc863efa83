"""The S3 API, as far as checkpoints need it: the objects below one run's prefix, and errors that say what to do.

Credentials, region and endpoint are found as boto3 finds them: its chain of credentials, `AWS_ENDPOINT_URL_S3` and `AWS_ENDPOINT_URL`.
A request for an object that does not exist is refused with 403 where `s3:ListBucket` is limited to a prefix, so that nothing here asks
for an object before a list has shown it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final

from training.checkpoint.remote.location import RemoteLocation

PART_BYTES: Final = 16 * 2**20
"""Size of the parts of an upload; boto3 takes larger ones for files of more than 10,000 parts, S3's limit."""

_CONCURRENCY: Final = 10
"""Requests at the same time, boto3's default."""

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 60.0
_ATTEMPTS: Final = 6
"""Of a request, the first included; with the backoff of botocore's standard mode (at most 20 s each) about half a minute."""


class RemoteStoreError(Exception):
    """A request to the bucket failed after its retries.

    Attributes:
        reason: what the store or the network said, in one line.
        code: the store's error code, e.g. `AccessDenied`; empty if it did not answer.
    """

    def __init__(self, what: str, *, reason: str, code: str = "") -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason
        self.code = code


class ConditionError(RemoteStoreError):
    """An object is not as the request required: somebody else has written or removed it."""


class CancelledError(RemoteStoreError):
    """The transfer was given up because its caller has no more use for it."""


@dataclass(frozen=True, kw_only=True)
class RemoteObject:
    """An object below the run's prefix, as a list shows it.

    Attributes:
        name: its key without the run's prefix.
        bytes: its size.
        etag: its entity tag, in quotes as the API has it.
    """

    name: str
    bytes: int
    etag: str


@dataclass(frozen=True, kw_only=True)
class ReadObject:
    """A small object.

    Attributes:
        data: its content.
        etag: its entity tag.
        age: seconds since it was written, by the store's own clock, which has seconds.
    """

    data: bytes
    etag: str
    age: float


class RunBucket:
    """The objects below a run's prefix. Every method may raise `RemoteStoreError`. Threads may share it."""

    def __init__(
        self,
        location: RemoteLocation,
        *,
        read_seconds: float = _READ_SECONDS,
        attempts: int | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Connect; sends nothing yet.

        Args:
            location: the bucket and the prefix.
            read_seconds: longest wait for a part of an answer.
            attempts: of a request, the first included; None is `AWS_MAX_ATTEMPTS` or the default here.
            part_bytes: size of the parts of an upload.
        """
        import boto3  # noqa: PLC0415 - takes 0.3 s, which runs without a bucket need not wait for
        from boto3.s3.transfer import TransferConfig  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415

        self.location = location
        tries = attempts or int(os.environ.get("AWS_MAX_ATTEMPTS") or _ATTEMPTS)
        with _explained(f"cannot connect to {location.url}"):
            self._client = boto3.session.Session().client(  # the default session is not for several threads
                "s3",
                region_name=os.environ.get("AWS_REGION"),  # which a pod has, and botocore does not read
                config=Config(
                    retries={"mode": "standard", "total_max_attempts": tries},
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=read_seconds,
                    max_pool_connections=2 * _CONCURRENCY,
                ),
            )
        self._transfer = TransferConfig(
            multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=_CONCURRENCY
        )
        owner = {} if location.owner is None else {"ExpectedBucketOwner": location.owner}
        self._common: dict[str, str] = {"Bucket": location.bucket, **owner}
        self._owner = owner
        self._lock = Lock()
        # Guarded by the lock.
        self._transfers: list[Any] = []
        self._is_cancelled = False

    def objects(self, below: str = "") -> list[RemoteObject]:
        """All objects whose path begins with `below`, sorted."""
        root = f"{self.location.folder}/"
        with _explained(f"{self.location.url} cannot be listed"):
            pages = self._client.get_paginator("list_objects_v2").paginate(**self._common, Prefix=root + below)
            return [
                RemoteObject(name=one["Key"].removeprefix(root), bytes=one["Size"], etag=one["ETag"])
                for page in pages
                for one in page.get("Contents", ())
            ]

    def read(self, name: str) -> ReadObject:
        """A small object, e.g. a manifest."""
        with _explained(f"{self.location.url}/{name} cannot be read"):
            answer = self._client.get_object(**self._common, Key=self.location.key(name))
            return ReadObject(data=answer["Body"].read(), etag=answer["ETag"], age=_age(answer))

    def write(self, name: str, data: bytes, *, replaces: str | None = None, is_new: bool = False) -> str:
        """Write a small object; returns its entity tag.

        Args:
            name: its path below the run's prefix.
            data: its content.
            replaces: entity tag of the object that it must replace.
            is_new: there must be no such object.

        Raises:
            ConditionError: the object is another one, is gone, or exists.
        """
        condition = {"IfNoneMatch": "*"} if is_new else {} if replaces is None else {"IfMatch": replaces}
        with _explained(f"{self.location.url}/{name} cannot be written"):
            answer = self._client.put_object(**self._common, Key=self.location.key(name), Body=data, **condition)
            return str(answer["ETag"])

    def remove(self, *names: str) -> None:
        """Remove objects, one after the other in this order."""
        for name in names:
            with _explained(f"{self.location.url}/{name} cannot be removed"):
                self._client.delete_object(**self._common, Key=self.location.key(name))

    def upload(self, files: Mapping[str, Path], *, on_bytes: Callable[[int], None]) -> None:
        """Upload files in parallel, large ones in parts, each with the CRC-32 that the store compares. An object exists once it is whole.

        CRC-32, because sha256 would cost the training's CPUs twice: the manifest has it, and the file was compared with it before.

        Args:
            files: path of each file, by the name of its object.
            on_bytes: called by several threads with the number of bytes sent.

        Raises:
            CancelledError: `cancel` was called.
            OSError: a file cannot be read.
        """
        self._transfer_all(
            lambda manager, name, path: manager.upload(
                str(path),
                self.location.bucket,
                self.location.key(name),
                extra_args={"ChecksumAlgorithm": "CRC32", **self._owner},
                subscribers=[_Reporter.of(on_bytes)],
            ),
            files,
            f"{self.location.url}: the upload failed",
        )

    def download(self, name: str, path: Path) -> None:
        """Download an object into a file, a large one in parts in parallel."""
        self._transfer_all(
            lambda manager, name, path: manager.download(
                self.location.bucket, self.location.key(name), str(path), extra_args=dict(self._owner)
            ),
            {name: path},
            f"{self.location.url}/{name} cannot be read",
        )

    def abort_uploads(self) -> int:
        """Give up all uploads below the run's prefix that nobody completes, which cost storage; returns their number."""
        root = f"{self.location.folder}/"
        with _explained(f"the uploads to {self.location.url} cannot be listed"):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(**self._common, Prefix=root)
            found = [(one["Key"], one["UploadId"]) for page in pages for one in page.get("Uploads", ())]
            for key, upload in found:
                self._client.abort_multipart_upload(**self._common, Key=key, UploadId=upload)
        return len(found)

    def cancel(self) -> None:
        """End the transfers of other threads, after the requests that are under way, and refuse new ones."""
        with self._lock:
            self._is_cancelled = True
            for future in self._transfers:
                future.cancel()

    def _transfer_all(self, start: Callable[[Any, str, Path], Any], files: Mapping[str, Path], what: str) -> None:
        """Transfer files by boto3's transfer manager; the first error ends the others."""
        from boto3.s3.transfer import create_transfer_manager  # noqa: PLC0415

        with _explained(what), create_transfer_manager(self._client, self._transfer) as manager:
            with self._lock:
                if self._is_cancelled:
                    raise CancelledError(what, reason="cancelled")
                futures = [start(manager, name, path) for name, path in files.items()]
                self._transfers += futures
            try:
                for future in futures:
                    future.result()
            finally:
                with self._lock:
                    self._transfers = [one for one in self._transfers if one not in futures]


class _Reporter:
    """Passes the progress of a transfer on, as s3transfer's subscribers do."""

    @staticmethod
    def of(on_bytes: Callable[[int], None]) -> Any:  # noqa: ANN401 - boto3 has no types
        """The subscriber."""
        from s3transfer.subscribers import BaseSubscriber  # noqa: PLC0415

        class Reporter(BaseSubscriber):  # type: ignore[misc]  # s3transfer has no types
            def on_progress(self, bytes_transferred: int, **_: object) -> None:
                on_bytes(bytes_transferred)

        return Reporter()


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """The block's errors of boto3 as `RemoteStoreError`, with the reason in one line."""
    from boto3.exceptions import Boto3Error  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # noqa: PLC0415
    from s3transfer.exceptions import CancelledError as TransferCancelledError  # noqa: PLC0415
    from s3transfer.exceptions import RetriesExceededError  # noqa: PLC0415

    try:
        yield
    except TransferCancelledError as error:
        raise CancelledError(what, reason="cancelled") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        kind = (
            ConditionError if code in {"PreconditionFailed", "412", "ConditionalRequestConflict"} else RemoteStoreError
        )
        raise kind(what, reason=_one_line(error), code=code) from error
    except RetriesExceededError as error:
        raise RemoteStoreError(what, reason=_one_line(error.last_exception)) from error
    except (BotoCoreError, HTTPClientError, Boto3Error) as error:
        raise RemoteStoreError(what, reason=_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return said or type(error).__name__


def _age(answer: Mapping[str, Any]) -> float:
    """Seconds between an object's last change and this answer, both by the store's clock."""
    changed: datetime = answer["LastModified"]
    now = datetime.now(changed.tzinfo)
    # The first date: a proxy may add one of its own, and botocore joins them. All end with GMT (RFC 9110, section 5.6.7).
    stated, gmt, _ = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "").partition(" GMT")
    with suppress(TypeError, ValueError):
        now = parsedate_to_datetime(stated + gmt)
    return max(0.0, (now - changed).total_seconds())
