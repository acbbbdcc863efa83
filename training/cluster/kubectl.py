"""kubectl, for what needs a terminal or a tunnel: shells and port forwards."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infra.spec.errors import PlatformError, RefusedError
from infra.spec.kubeconfig import kubeconfig as kubeconfig_of
from infra.spec.outputs import StackOutputs

_PROGRAM = "kubectl"
_SECONDS = 60


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


@contextmanager
def kubectl_for(
    outputs: StackOutputs, *, namespace: str, kubeconfig: Path | None, environment: Mapping[str, str]
) -> Iterator[Kubectl]:
    """Kubectl for a stack's cluster, with the kubeconfig that `infra.kube.stack_connection.connect` has checked.

    Raises:
        RefusedError: it is not installed.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise RefusedError(
            f"no `{_PROGRAM}` on PATH, which connects to the pods of a session",
            remedy="install it: https://kubernetes.io/docs/tasks/tools",
        )
    chosen = kubeconfig or (Path(environment["KUBECONFIG"]) if environment.get("KUBECONFIG") else None)
    with tempfile.TemporaryDirectory() as folder:
        if chosen is None:
            chosen, cluster = Path(folder, "kubeconfig"), outputs.cluster
            document = kubeconfig_of(
                name=cluster.name,
                endpoint=cluster.endpoint,
                authority=cluster.certificate_authority,
                region=outputs.region,
            )
            chosen.write_text(json.dumps(document), encoding="utf-8")
        yield Kubectl(program, kubeconfig=chosen, namespace=namespace)
