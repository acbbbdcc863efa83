"""An object in the team's part of the checkpoint bucket: written, read back, removed; and one of another team, which must be refused."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from training.conformance.facts import ObjectFacts

ENDPOINT: Final = "AWS_ENDPOINT_URL"
"""Environment variable of boto3 with an endpoint in place of AWS's."""

_OBJECT_BYTES = 1 << 20


def round_trip(bucket: str, *, own: str, foreign: str | None, name: str) -> ObjectFacts:
    """Write and read with the credentials of this process.

    Args:
        bucket: the bucket.
        own: folder of the team.
        foreign: folder of another team; None if there is no other.
        name: of the objects.

    Raises:
        botocore.exceptions.BotoCoreError, ClientError: the team cannot use its own folder.
    """
    region = os.environ.get("AWS_REGION")  # which a pod has, and botocore does not read
    s3 = boto3.client("s3", region_name=region, config=Config(retries={"mode": "standard"}))
    content = os.urandom(_OBJECT_BYTES)
    key = f"{own}/{name}"
    s3.put_object(Bucket=bucket, Key=key, Body=content)
    try:
        read = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    finally:
        s3.delete_object(Bucket=bucket, Key=key)
    foreign_key = "" if foreign is None else f"{foreign}/{name}"
    return ObjectFacts(
        bucket=bucket,
        endpoint=os.environ.get(ENDPOINT, ""),
        written_sha256=hashlib.sha256(content).hexdigest(),
        read_sha256=hashlib.sha256(read).hexdigest(),
        foreign_key=foreign_key,
        foreign_error=_write_error(s3, bucket, foreign_key) if foreign_key else "",
    )


def _write_error(s3: Any, bucket: str, key: str) -> str:  # noqa: ANN401 - boto3 makes its classes at run time
    """The code with which a write is refused; empty if it is accepted, and then undone as far as that is possible."""
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    with suppress(ClientError):
        s3.delete_object(Bucket=bucket, Key=key)
    return ""
