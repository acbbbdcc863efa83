"""The control plane of Kubernetes as plain processes on loopback: no machine, no container, no root."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox import credentials, layout
from infra.lifecycle.sandbox.definitions import define
from infra.lifecycle.sandbox.layout import Layout
from infra.lifecycle.sandbox.processes import Process, free_ports
from infra.lifecycle.sandbox.programs import Programs
from infra.spec.manifest import Manifest

CONTEXT = "sandbox"
"""Name of the kubeconfig's context."""

_START_SECONDS = 60.0


class ControlPlane:
    """etcd, API server, controllers, scheduler and kwok, from entering the context to leaving it.

    Attributes:
        kubeconfig: file with which any client is an administrator.
        folder: where its files are, while it is up.
    """

    def __init__(self, folder: Path, *, programs: Programs, definitions: Iterable[Manifest] = ()) -> None:
        """A control plane that is not started yet.

        Args:
            folder: made at the start and removed at the end, with everything in it.
            programs: see `programs.find`.
            definitions: custom resource definitions that are there before the controllers start, which count and
                collect objects of a kind that comes later only after half a minute.
        """
        api, etcd, etcd_peer = free_ports(3)
        self._layout = Layout(folder=folder.resolve(), api_port=api, etcd_port=etcd, etcd_peer_port=etcd_peer)
        self._programs = programs
        self._definitions = tuple(definitions)
        self._processes: list[Process] = []
        self.folder = self._layout.folder
        self.kubeconfig = self._layout.kubeconfig

    def __enter__(self) -> Self:
        """Start everything; it is ready when this returns, in about 5 s.

        Raises:
            StackError: a program did not start; with the end of its output.
        """
        self._layout.folder.mkdir(parents=True, mode=0o700)
        try:
            self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill everything and remove the folder."""
        self._stop_all()

    def client(self, user: str | None = None, groups: Sequence[str] = ()) -> client.ApiClient:
        """A client of the API server.

        Args:
            user: whom to impersonate; None stays an administrator.
            groups: groups of that user, at most one: the client sends a header once. Kubernetes adds
                `system:authenticated`.
        """
        if len(groups) > 1:
            raise ValueError(f"groups={groups!r}: the client can impersonate one group only")
        found = config.new_client_from_config(str(self.kubeconfig))
        if user is not None:
            found.set_default_header("Impersonate-User", user)
        if groups:
            found.set_default_header("Impersonate-Group", groups[0])
        return found

    def run(self, name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> Process:
        """Start a further program, which ends with the control plane.

        Args:
            name: what its log is called.
            command: the program and its arguments.
            environment: variables beside those of this process.
        """
        process = Process(command, log=self._layout.log(name), environment=environment)
        self._processes.append(process)
        return process

    def _start_all(self) -> None:
        token = credentials.administrator_token()
        _write(self._layout.tokens, credentials.token_file(token))
        _write(self._layout.account_key, credentials.account_key())
        self._start("etcd", layout.etcd)
        server = self._start("kube-apiserver", layout.kube_apiserver)
        server.await_(self._layout.certificate.exists, seconds=_START_SECONDS)
        text = credentials.kubeconfig(
            server=self._layout.server, certificate=self._layout.certificate, token=token, name=CONTEXT
        )
        _write(self.kubeconfig, text)
        server.await_(self._is_serving, seconds=_START_SECONDS)
        define(KubernetesApi(self.client()), self._definitions)
        controllers = self._start("kube-controller-manager", layout.kube_controller_manager)
        self._start("kube-scheduler", layout.kube_scheduler)
        self._start("kwok", layout.kwok)
        controllers.await_(self._has_accounts, seconds=_START_SECONDS)

    def _start(self, program: str, arguments: Callable[[Layout], list[str]]) -> Process:
        return self.run(program, [self._programs[program], *arguments(self._layout)])

    def _stop_all(self) -> None:
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()
        shutil.rmtree(self._layout.folder)

    def _is_serving(self) -> bool:
        return self._answers("/readyz")

    def _has_accounts(self) -> bool:
        """Whether the controllers work: one of them makes the account without which no pod is admitted."""
        return self._answers("/api/v1/namespaces/default/serviceaccounts/default")

    def _answers(self, path: str) -> bool:
        with self.client() as api:
            request = api.param_serialize("GET", path, auth_settings=["BearerToken"])
            try:
                return int(api.call_api(*request).status) == 200
            except (ApiException, HTTPError, OSError):
                return False


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
