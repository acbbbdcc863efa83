"""Terraform with its real AWS provider, found on this machine: what it knows of resources, and what it would do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from moto.server import ThreadedMotoServer

from tests.engines.report_table import ran, skipped

NAME = "Terraform AWS provider"
MIRROR_VARIABLE = "RTP_TERRAFORM_PLUGINS"
DEFAULT_MIRROR = Path("/opt/tf-plugins")
PROVIDER = "registry.terraform.io/hashicorp/aws"

Document = dict[str, Any]
"""A Terraform configuration in JSON syntax."""


@dataclass(frozen=True)
class Tools:
    """Terraform and a folder of provider plugins.

    Attributes:
        binary: the `terraform` program.
        mirror: a filesystem mirror that holds the AWS provider.
        version: version of the AWS provider in it.
    """

    binary: str
    mirror: Path
    version: str


def find_tools() -> Tools:
    """Terraform and the AWS provider of this machine; skips the test where either is absent."""
    binary = shutil.which("terraform")
    mirror = Path(os.environ.get(MIRROR_VARIABLE, DEFAULT_MIRROR))
    versions = sorted(path.name for path in (mirror / PROVIDER).glob("*") if path.is_dir())
    if binary is None:
        skipped(NAME, "no terraform on PATH", "install Terraform 1.5 or newer")
    if not versions:
        skipped(
            NAME, f"no AWS provider in {mirror}", f"set {MIRROR_VARIABLE} to a folder of `terraform providers mirror`"
        )
    return Tools(binary, mirror, versions[-1])


class Workspace:
    """A folder that Terraform works in.

    Args:
        tools: Terraform and the provider.
        folder: an empty folder.
        endpoint: URL that every AWS API is called at.
        region: AWS region.
    """

    def __init__(self, tools: Tools, folder: Path, *, endpoint: str, region: str) -> None:
        self._tools = tools
        self._folder = folder
        self._endpoint = endpoint
        self._region = region
        rc = folder / "cli.tfrc"
        rc.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{tools.mirror}"\n  }}\n}}\n')
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TF_CLI_CONFIG_FILE": str(rc),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @cached_property
    def schemas(self) -> Mapping[str, Any]:
        """What the provider says of its resources, by Terraform type."""
        self.write({})
        self._run("init", "-input=false")
        document = json.loads(self._run("providers", "schema", "-json"))
        ran(NAME)
        schemas: Mapping[str, Any] = document["provider_schemas"][PROVIDER]["resource_schemas"]
        return schemas

    @cached_property
    def services(self) -> tuple[str, ...]:
        """Names of the services whose endpoint the provider lets one set."""
        document = json.loads(self._run("providers", "schema", "-json"))
        blocks = document["provider_schemas"][PROVIDER]["provider"]["block"]["block_types"]
        return tuple(blocks["endpoints"]["block"]["attributes"])

    def write(self, resources: Document, *, default_tags: Mapping[str, str] | None = None) -> None:
        """Write the configuration: resources by type and name, and a provider that calls the endpoint."""
        provider: Document = {"region": self._region, "access_key": "test", "secret_key": "test"}
        skips = ("credentials_validation", "metadata_api_check", "region_validation")
        provider |= {f"skip_{check}": True for check in skips}
        provider |= {"s3_use_path_style": True, "max_retries": 1, "default_tags": [{"tags": dict(default_tags or {})}]}
        if resources:
            provider["endpoints"] = [dict.fromkeys(self.services, self._endpoint)]
        document: Document = {
            "terraform": {"required_providers": {"aws": {"source": PROVIDER, "version": self._tools.version}}},
            "provider": {"aws": provider},
        }
        if resources:
            document["resource"] = resources
        (self._folder / "main.tf.json").write_text(json.dumps(document, indent=1), encoding="utf-8")

    def validate(self) -> list[str]:
        """What the provider finds wrong with the configuration."""
        answer = json.loads(self._run("validate", "-json", is_checked=False))
        return [f"{one['summary']}: {one.get('detail', '')} {_where(one)}" for one in answer["diagnostics"]]

    def plan(self) -> dict[str, tuple[str, ...]]:
        """What Terraform would do: actions by address, without those that do nothing."""
        self._run("plan", "-input=false", "-lock=false", "-parallelism=40", "-out=plan")
        changes = json.loads(self._run("show", "-json", "plan"))["resource_changes"]
        planned = {one["address"]: tuple(one["change"]["actions"]) for one in changes}
        return {address: actions for address, actions in planned.items() if actions != ("no-op",)}

    def planned_differences(self) -> dict[str, list[str]]:
        """Names of the attributes that the last plan would change in place, by address."""
        changes = json.loads(self._run("show", "-json", "plan"))["resource_changes"]
        return {
            one["address"]: sorted(
                key for key, value in one["change"]["after"].items() if one["change"]["before"].get(key) != value
            )
            for one in changes
            if one["change"]["actions"] == ["update"]
        }

    def apply(self) -> None:
        """Do what the last plan says."""
        self._run("apply", "-input=false", "-lock=false", "-parallelism=40", "plan")

    def destroy(self) -> None:
        """Destroy everything."""
        self._run("destroy", "-auto-approve", "-input=false", "-lock=false", "-parallelism=40")

    def state(self) -> list[str]:
        """Addresses of what exists, as Terraform knows it."""
        return self._run("state", "list", is_checked=False).split()

    def _run(self, *arguments: str, is_checked: bool = True) -> str:
        done = subprocess.run(
            [
                self._tools.binary,
                *arguments,
                *([] if arguments[0] in {"show", "state", "providers"} else ["-no-color"]),
            ],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if is_checked and done.returncode != 0:
            raise AssertionError(f"terraform {' '.join(arguments)}:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
        return done.stdout


@contextmanager
def moto_server() -> Iterator[str]:
    """A moto server with nothing in it; its URL."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def _where(diagnostic: Mapping[str, Any]) -> str:
    snippet = diagnostic.get("snippet") or {}
    return f"({snippet.get('context', '')}: {snippet.get('code', '').strip()[:120]})"
