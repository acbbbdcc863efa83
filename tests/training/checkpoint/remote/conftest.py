"""A bucket of its own for each test, behind a proxy that can fail."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.engines.s3 import S3Api
from tests.engines.s3_faults import FaultyS3, faulty_s3
from tests.training.checkpoint.remote.parts import connect
from training.checkpoint.remote.bucket import RunBucket


@pytest.fixture
def proxy(s3_api: S3Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """The way from this process, and those that it starts, to the S3 API."""
    with faulty_s3(s3_api) as proxy:
        for name, value in {**s3_api.environment(), "AWS_ENDPOINT_URL": proxy.endpoint}.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def remote(proxy: FaultyS3, s3_api: S3Api) -> str:
    """`checkpoint.remote` of a new, empty place."""
    return f"s3://{s3_api.bucket}/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def bucket(remote: str) -> RunBucket:
    """The part of a run named `run`, whose requests are not repeated."""
    return connect(remote)
