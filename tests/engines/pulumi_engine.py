"""The real Pulumi engine with a local backend, and moto in place of AWS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from tests.engines.report_table import ran, skipped

NAME = "Pulumi engine"
_PLUGINS = ("aws", "kubernetes")


def find_engine() -> None:
    """Skip the test without the engine or a provider's plugin."""
    if shutil.which("pulumi") is None:
        skipped(NAME, "no pulumi on PATH", "install the Pulumi CLI")
    listed = subprocess.run(["pulumi", "plugin", "ls", "--json"], capture_output=True, text=True, check=True)
    names = {plugin["name"] for plugin in json.loads(listed.stdout)}
    for plugin in _PLUGINS:
        if plugin not in names:
            skipped(NAME, f"no plugin {plugin}", f"pulumi plugin install resource {plugin}")
    ran(NAME)


@contextmanager
def engine_environment(folder: Path, *, account: str, region: str) -> Iterator[Mapping[str, str]]:
    """Environment variables of an engine with its state in `folder`, moto in place of AWS, and credentials of `account`."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        backend = folder / "backend"
        backend.mkdir()
        yield {
            **_credentials(endpoint, account=account, region=region),
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": region,
            "PULUMI_BACKEND_URL": backend.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PATH": os.environ["PATH"],
        }
    finally:
        server.stop()


def _credentials(endpoint: str, *, account: str, region: str) -> dict[str, str]:
    """Credentials that moto attributes to `account`, by the ARN of the assumed role."""
    sts = boto3.client(
        "sts", endpoint_url=endpoint, region_name=region, aws_access_key_id="test", aws_secret_access_key="test"
    )
    role = f"arn:aws:iam::{account}:role/platform-admin"
    answer: dict[str, Any] = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": answer["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": answer["SecretAccessKey"],
        "AWS_SESSION_TOKEN": answer["SessionToken"],
    }
