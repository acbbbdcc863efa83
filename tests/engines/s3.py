"""The S3 API on loopback, served by moto."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engines.ports import free_port
from tests.engines.report_table import ran
from tests.engines.servers import running

REGION = "us-east-1"


@dataclass(frozen=True)
class S3Api:
    """An S3 endpoint and a bucket."""

    endpoint: str
    bucket: str

    def environment(self) -> dict[str, str]:
        """Environment variables of a process that uses it; moto accepts any credentials."""
        return {
            "MLFLOW_S3_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def object_names(self) -> list[str]:
        """Keys of all objects in the bucket."""
        pages = _client(self.endpoint).get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def read(self, key: str) -> bytes:
        """The content of an object."""
        content: bytes = _client(self.endpoint).get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        _client(self.endpoint).put_object(Bucket=self.bucket, Key=key, Body=content)

    def remove(self, key: str) -> None:
        """Remove an object."""
        _client(self.endpoint).delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture(scope="session")
def s3_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Api]:
    """An S3 endpoint with an empty bucket."""
    with s3_server(tmp_path_factory.mktemp("s3")) as api:
        yield api


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Api]:
    """An S3 endpoint with an empty bucket, in a separate process, because moto's mocks in this one reset its stores."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with running(command, log=folder / "moto.log", is_ready=lambda: _accepts(port)):
        api = S3Api(endpoint=f"http://127.0.0.1:{port}", bucket="artifacts")
        _client(api.endpoint).create_bucket(Bucket=api.bucket)
        ran("S3 API")
        yield api


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _client(endpoint: str) -> Any:  # noqa: ANN401 - boto3 makes its classes at run time
    import boto3  # noqa: PLC0415

    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
    )
