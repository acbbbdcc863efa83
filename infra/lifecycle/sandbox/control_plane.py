"""A Kubernetes control plane as plain processes on loopback, without containers or root."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from infra.kube.api import KubernetesApi
from infra.kube.client import client_of
from infra.kube.definitions import apply_crds
from infra.lifecycle.sandbox import credentials, layout
from infra.lifecycle.sandbox.layout import Layout, NodeAccess
from infra.lifecycle.sandbox.processes import Process, free_ports
from infra.lifecycle.sandbox.programs import Programs
from infra.spec.manifest import Manifest

CONTEXT = "sandbox"
"""Context name in the kubeconfig."""

_START_SECONDS = 180.0


class ControlPlane:
    """etcd, API server, controller manager, scheduler and kwok, running while the context is open.

    Attributes:
        kubeconfig: path of a kubeconfig with administrator rights.
        folder: its files, while it runs.
    """

    def __init__(
        self, folder: Path, *, programs: Programs, crds: Iterable[Manifest] = (), nodes: NodeAccess | None = None
    ) -> None:
        """A control plane that is not started.

        Args:
            folder: created at the start and deleted with its contents at the end.
            programs: see `programs.find`.
            crds: applied before the controllers start, which take half a minute to count and garbage-collect objects of
                a kind that is added later.
            nodes: real nodes that will join; None: there are only fake ones.
        """
        api, etcd, etcd_peer = free_ports(3)
        self._layout = Layout(
            folder=folder.resolve(), api_port=api, etcd_port=etcd, etcd_peer_port=etcd_peer, nodes=nodes
        )
        self._programs = programs
        self._crds = tuple(crds)
        self._processes: list[Process] = []
        self._answer = ""
        self.folder = self._layout.folder
        self.kubeconfig = self._layout.kubeconfig

    def __enter__(self) -> Self:
        """Start all processes and wait until they are ready, about 5 s.

        Raises:
            PlatformError: a program did not start; carries the end of its output.
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
        """Kill all processes and delete the folder."""
        self._stop_all()

    def client(self, user: str | None = None, groups: Sequence[str] = ()) -> client.ApiClient:
        """A client of the API server.

        Args:
            user: user to impersonate; None keeps administrator rights.
            groups: groups of that user, at most one, because the client sends each header once. Kubernetes adds
                `system:authenticated`.
        """
        if len(groups) > 1:
            raise ValueError(f"groups={groups!r}: the client can impersonate one group at most")
        found = client_of(self.kubeconfig)
        if user is not None:
            found.set_default_header("Impersonate-User", user)
        if groups:
            found.set_default_header("Impersonate-Group", groups[0])
        return found

    def kubeconfig_for(self, token: str) -> str:
        """Contents of a kubeconfig for the owner of a token; once the API server has its certificate."""
        return credentials.kubeconfig(
            server=self._layout.server, certificate=self._layout.certificate, token=token, name=CONTEXT
        )

    def run(self, name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> Process:
        """Start another program, which is stopped with the control plane.

        Args:
            name: name of its log file.
            command: the program and its arguments.
            environment: environment variables to add to those of this process.
        """
        process = Process(command, log=self._layout.log(name), environment=environment)
        self._processes.append(process)
        return process

    def _start_all(self) -> None:
        token = credentials.administrator_token()
        nodes = self._layout.nodes
        _write(self._layout.tokens, credentials.token_file(token) + (nodes.tokens if nodes else ""))
        _write(self._layout.account_key, credentials.account_key())
        self._start("etcd", layout.etcd)
        server = self._start("kube-apiserver", layout.kube_apiserver)
        server.await_(self._layout.certificate.exists, seconds=_START_SECONDS)
        _write(self.kubeconfig, self.kubeconfig_for(token))
        server.await_(self._is_serving, seconds=_START_SECONDS, last_answer=lambda: self._answer)
        apply_crds(KubernetesApi(self.client()), self._crds)
        controllers = self._start("kube-controller-manager", layout.kube_controller_manager)
        self._start("kube-scheduler", layout.kube_scheduler)
        self._start("kwok", layout.kwok)
        controllers.await_(self._has_accounts, seconds=_START_SECONDS, last_answer=lambda: self._answer)

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
        """Whether the controller manager works: it creates the service account that pods need for admission."""
        return self._answers("/api/v1/namespaces/default/serviceaccounts/default")

    def _answers(self, path: str) -> bool:
        with self.client() as api:
            request = api.param_serialize("GET", path, auth_settings=["BearerToken"])
            try:
                return int(api.call_api(*request).status) == 200
            except ApiException as error:
                self._answer = f"GET {path}: {error.status}\n{error.body}\n"
            except (HTTPError, OSError) as error:
                self._answer = f"GET {path}: {error}\n"
            return False


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
