"""Pulumi's real engine with a backend in a folder, and AWS answered by moto."""

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
    """Skip the test where the engine or a provider's plugin is absent."""
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
    """Variables under which the engine keeps its state in `folder` and takes moto for AWS, with credentials of `account`."""
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
    """Credentials that moto takes for those of `account`: it knows the account by the role that was assumed."""
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
