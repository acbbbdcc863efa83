"""A real Fluent Bit with the chart's configuration, on a folder of container logs in place of a node's.

What stands in for the cluster: a server that answers the kubernetes filter with pods, and the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.spec.manifest import Manifest
from tests.engines.ports import free_port
from tests.engines.report_table import ran, skipped
from tests.engines.servers import Handler, http_server

_NAME = "Fluent Bit"
_PARSERS = """[PARSER]
    Name unused
    Format json
"""


@dataclass(frozen=True)
class ContainerLog:
    """The log of a container as containerd writes it."""

    pod: Manifest
    container: str
    lines: Sequence[tuple[str, str]]

    def write(self, folder: Path) -> None:
        """Write the file that the kubelet links in /var/log/containers."""
        metadata = self.pod["metadata"]
        name = f"{metadata['name']}_{metadata['namespace']}_{self.container}-{'0' * 64}.log"
        text = "".join(f"{time} stdout F {line}\n" for time, line in self.lines)
        folder.joinpath(name).write_text(text, encoding="utf-8")


def find_fluent_bit() -> str:
    """Find the program; skips without it."""
    found = os.environ.get("FLUENT_BIT") or shutil.which("fluent-bit")
    if found is None:
        skipped(_NAME, "no fluent-bit on PATH", "install Fluent Bit 5, or set FLUENT_BIT=/path/to/fluent-bit")
    ran(_NAME)
    return found


@contextmanager
def shipping(
    config: Mapping[str, str], folder: Path, logs: Sequence[ContainerLog], *, output: Mapping[str, str]
) -> Iterator[Path]:
    """Run Fluent Bit until the context exits; gives the file with its own messages."""
    program = find_fluent_bit()
    containers, state = folder / "log" / "containers", folder / "state"
    containers.mkdir(parents=True)
    state.mkdir()
    with _api_server([one.pod for one in logs]) as url:
        file = _write(config, folder, api_server=url, output=output)
        for one in logs:
            one.write(containers)
        messages = folder / "fluent-bit.log"
        environment = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "PATH": os.environ["PATH"]}
        with (
            messages.open("wb") as stream,
            subprocess.Popen([program, "-c", str(file)], stdout=stream, stderr=stream, env=environment) as process,
        ):
            try:
                yield messages
            finally:
                process.kill()


def _write(config: Mapping[str, str], folder: Path, *, api_server: str, output: Mapping[str, str]) -> Path:
    """The files of the chart's ConfigMap, with this machine's paths, ports and addresses."""
    token = folder / "token"
    token.write_text("token", encoding="utf-8")
    replaced = {
        "/fluent-bit/etc/conf": str(folder),
        "/fluent-bit/etc": str(folder),
        "/var/lib/fluent-bit": str(folder / "state"),
        "/var/log": str(folder / "log"),
        "kube.var.log.containers.": f"kube.{str(folder / 'log' / 'containers').lstrip('/').replace('/', '.')}.",
        "HTTP_Listen 0.0.0.0": "HTTP_Listen 127.0.0.1",
        "HTTP_Port 2020": f"HTTP_Port {free_port()}",
        "Flush 5": "Flush 0.2",
        "Name kubernetes": f"Name kubernetes\n    Kube_URL {api_server}\n    Kube_Token_File {token}",
    }
    files = {
        "parsers.conf": _PARSERS,
        "custom_parsers.conf": config["customParsers"],
        "fluent-bit.conf": "".join(f"{config[part]}\n" for part in ("service", "inputs", "filters", "outputs")).rstrip()
        + "".join(f"\n    {key} {value}" for key, value in output.items())
        + "\n",
    }
    for name, content in files.items():
        text = content
        for before, after in replaced.items():
            text = text.replace(before, after)
        folder.joinpath(name).write_text(text, encoding="utf-8")
    return folder / "fluent-bit.conf"


@contextmanager
def _api_server(pods: Sequence[Manifest]) -> Iterator[str]:
    """A server of pods by their path in the Kubernetes API."""
    known = {f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}": pod for pod in pods}

    class PodHandler(Handler):
        """Answers GET of a pod."""

        def do_GET(self) -> None:  # noqa: N802
            """Send the pod, or 404."""
            pod = known.get(self.path)
            self.answer(200 if pod else 404, json.dumps(pod or {"kind": "Status", "code": 404}).encode())

    with http_server(PodHandler) as url:
        yield url
