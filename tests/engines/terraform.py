"""Terraform with the real AWS provider: resource schemas and plans."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from moto.server import ThreadedMotoServer

from tests.engines.report_table import ran, skipped
from tests.processes import run_command

NAME = "Terraform AWS provider"
MIRROR_VARIABLE = "RTP_TERRAFORM_PLUGINS"
DEFAULT_MIRROR = Path("/opt/tf-plugins")
PROVIDER = "registry.terraform.io/hashicorp/aws"
SERVICES = ("autoscaling", "budgets", "ec2", "ecr", "efs", "eks", "iam", "kms", "logs", "rds", "s3", "sns", "sts")
"""AWS services of the stack's resources; moto answers for each."""

Document = dict[str, Any]
"""Part of a Terraform configuration in JSON syntax."""


@dataclass(frozen=True)
class Tools:
    """Terraform and a folder of provider plugins."""

    binary: str
    mirror: Path
    version: str


def find_tools() -> Tools:
    """Find Terraform and the AWS provider; skips without either."""
    binary = shutil.which("terraform")
    mirror = Path(os.environ.get(MIRROR_VARIABLE, DEFAULT_MIRROR))
    versions = sorted(path.name for path in (mirror / PROVIDER).glob("*") if path.is_dir())
    if binary is None:
        skipped(NAME, "no terraform on PATH", "install Terraform 1.5 or newer")
    if not versions:
        enable = f"set {MIRROR_VARIABLE} to a folder filled by `terraform providers mirror`"
        skipped(NAME, f"no AWS provider in {mirror}", enable)
    return Tools(binary, mirror, versions[-1])


class Workspace:
    """An initialised working directory of Terraform."""

    def __init__(self, tools: Tools, folder: Path, *, endpoint: str, region: str) -> None:
        self._tools = tools
        self._folder = folder
        self._settings: Document = {
            "region": region,
            "access_key": "test",
            "secret_key": "test",
            "skip_credentials_validation": True,
            "skip_metadata_api_check": True,
            "skip_region_validation": True,
            "s3_use_path_style": True,
            "max_retries": 1,
            "endpoints": [dict.fromkeys(SERVICES, endpoint)],
        }
        rc = folder / "cli.tfrc"
        rc.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{tools.mirror}"\n  }}\n}}\n')
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TF_CLI_CONFIG_FILE": str(rc),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
        }
        self.write({}, tags={})
        self._run("init", "-input=false", "-no-color")

    @cached_property
    def schemas(self) -> Mapping[str, Any]:
        """The provider's resource schemas by Terraform type."""
        document = json.loads(self._run("providers", "schema", "-json"))
        ran(NAME)
        schemas: Mapping[str, Any] = document["provider_schemas"][PROVIDER]["resource_schemas"]
        return schemas

    def write(self, resources: Document, *, tags: Mapping[str, str]) -> None:
        """Write the configuration: resources by type and name, and the provider's default tags."""
        document: Document = {
            "terraform": {"required_providers": {"aws": {"source": PROVIDER, "version": self._tools.version}}},
            "provider": {"aws": {**self._settings, "default_tags": [{"tags": dict(tags)}]}},
            **({"resource": resources} if resources else {}),
        }
        (self._folder / "main.tf.json").write_text(json.dumps(document, indent=1), encoding="utf-8")

    def plan(self) -> dict[str, str]:
        """Plan: the action by address. The provider validates every resource.

        Raises:
            AssertionError: the provider refuses a resource; carries its message.
        """
        lines = self._run("plan", "-input=false", "-lock=false", "-parallelism=40", "-json").splitlines()
        events = [json.loads(line) for line in lines]
        changes = [event["change"] for event in events if event["type"] == "planned_change"]
        return {change["resource"]["addr"]: change["action"] for change in changes}

    def _run(self, *arguments: str) -> str:
        done = run_command([self._tools.binary, *arguments], cwd=self._folder, env=self._environment)
        output = (
            [*_errors(done.stdout.splitlines()), done.stderr] if "-json" in arguments else [done.stdout, done.stderr]
        )
        assert done.returncode == 0, f"terraform {' '.join(arguments)}:\n" + "\n".join(output)
        return done.stdout


def _errors(lines: Sequence[str]) -> Iterator[str]:
    """The provider's errors, each with the resource's address."""
    for line in lines:
        event = json.loads(line) if line.startswith("{") else {}
        diagnostic = event.get("diagnostic", {})
        if diagnostic.get("severity") == "error":
            yield f"{diagnostic.get('address', '')}: {diagnostic['summary']} {diagnostic.get('detail', '')}"


@contextmanager
def moto_server() -> Iterator[str]:
    """Run a moto server that holds only AWS's managed IAM policies; yields its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()
