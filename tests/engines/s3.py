"""S3's API on loopback, by moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.engines.report_table import ran

REGION = "us-east-1"


@dataclass(frozen=True)
class S3Api:
    """An endpoint that speaks S3, and a bucket in it."""

    endpoint: str
    bucket: str

    def environment(self) -> dict[str, str]:
        """What makes a process use it: any credentials do."""
        return {
            "MLFLOW_S3_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def object_names(self) -> list[str]:
        """Keys of all objects of the bucket."""
        pages = _client(self.endpoint).get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


@pytest.fixture(scope="session")
def s3_api() -> Iterator[S3Api]:
    """An S3 endpoint with an empty bucket."""
    # Imported here: moto takes a second, and most tests need none of it.
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    api = S3Api(endpoint=f"http://{host}:{port}", bucket="artifacts")
    _client(api.endpoint).create_bucket(Bucket=api.bucket)
    ran("S3 API")
    yield api
    server.stop()


def _client(endpoint: str) -> Any:  # noqa: ANN401 - boto3 makes its classes at run time
    import boto3  # noqa: PLC0415

    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
    )
