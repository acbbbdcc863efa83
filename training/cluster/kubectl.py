"""kubectl, for what needs a terminal or a tunnel: shells and port forwards."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.spec.errors import PlatformError, RefusedError
from infra.spec.kubeconfig import kubeconfig as kubeconfig_of
from infra.spec.outputs import StackOutputs

_PROGRAM = "kubectl"
_SECONDS = 60
_FOLDER = Path(".local", "kubeconfigs")


class Kubectl:
    """kubectl in one namespace of one cluster."""

    def __init__(self, program: str, *, kubeconfig: Path, namespace: str) -> None:
        self._command = [program, f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        return [*self._command, *arguments]

    def run(self, *arguments: str) -> int:
        """Run it in this terminal; returns its exit status. Ctrl-C goes to it as well, and only it ends."""
        with subprocess.Popen([*self._command, *arguments]) as process:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    continue

    def output(self, *arguments: str, seconds: float = _SECONDS) -> str:
        """What it prints.

        Raises:
            RefusedError: it fails; carries its message.
            PlatformError: it does not end in time.
        """
        try:
            done = subprocess.run(
                [*self._command, *arguments], capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise PlatformError(f"{_PROGRAM} {arguments[0]} did not end within {seconds:g} s") from error
        if done.returncode:
            raise RefusedError(f"{_PROGRAM} {arguments[0]}: {' '.join(done.stderr.split())}")
        return done.stdout


def kubectl_for(
    outputs: StackOutputs, *, namespace: str, kubeconfig: Path | None, environment: Mapping[str, str]
) -> Kubectl:
    """Kubectl for a stack's cluster, with the kubeconfig that `infra.kube.stack_connection.connect` has checked.

    Raises:
        RefusedError: it is not installed.
        SettingsError: RTP_API_SERVER is not a URL.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise RefusedError(
            f"no `{_PROGRAM}` on PATH, which connects to pods",
            remedy="install it: https://kubernetes.io/docs/tasks/tools",
        )
    chosen = kubeconfig or (Path(environment["KUBECONFIG"]) if environment.get("KUBECONFIG") else None)
    return Kubectl(program, kubeconfig=chosen or _written(outputs, environment), namespace=namespace)


def _written(outputs: StackOutputs, environment: Mapping[str, str]) -> Path:
    """File with the kubeconfig of a stack, named by its content: it has no secrets, and every later command uses it again."""
    from infra.kube.connection import api_server  # noqa: PLC0415 - not in the trainer's environment

    cluster = outputs.cluster
    document = kubeconfig_of(
        name=cluster.name,
        endpoint=cluster.endpoint,
        authority=cluster.certificate_authority,
        region=outputs.region,
        via=api_server(environment),
    )
    text = json.dumps(document)
    file = _FOLDER.resolve() / f"{outputs.environment}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)
    return file
