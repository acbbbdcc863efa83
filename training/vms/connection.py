"""The job server of a cluster's head, through an SSH connection that Ray's launcher makes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from infra.spec.cluster_names import RAY_PORTS
from infra.spec.errors import RefusedError
from training.cluster.port_forward import port_forward
from training.local_port import local_port
from training.vms.place import RunPlace

_OPEN_SECONDS = 120.0
"""Time for `ray dashboard` to import Ray, ask AWS for the head, and connect to it."""

_REMOTE = RAY_PORTS["dashboard"]


class HeadConnection:
    """A local port at which the head's job server answers."""

    def __init__(self, file: Path, stack: ExitStack) -> None:
        self._file, self._stack = file, stack
        port = local_port(0, usual=0)
        self.url = f"http://127.0.0.1:{port}"
        ray = Path(sys.executable).with_name("ray")
        self._command = [str(ray), "dashboard", str(file), f"--port={port}", f"--remote-port={_REMOTE}"]

    def open(self) -> None:
        """Connect, or connect again at the same port.

        Raises:
            RefusedError: the head cannot be reached; carries what Ray and ssh said.
        """
        self._stack.close()
        forward = self._stack.enter_context(port_forward(self._command, url=f"{self.url}/api/authentication_mode"))
        try:
            forward.await_open(seconds=_OPEN_SECONDS)
        except ConnectionError as error:
            raise RefusedError(
                f"the head of {self._file} does not answer: {error}",
                remedy=f"start the cluster: .venv/bin/ray up {shlex.quote(str(self._file))}; "
                "in EC2, ssh needs the AWS CLI with its SSM plugin",
            ) from error


@contextmanager
def connected(file: Path, place: RunPlace) -> Iterator[HeadConnection]:
    """A connection until the end of the block. Ray's client, imported in the block, uses the cluster's token.

    Raises:
        RefusedError: the head cannot be reached, or the token is on another machine.
    """
    if not Path(place.token_file).is_file():
        raise RefusedError(
            f"the token of {file} is not on this machine: {place.token_file}",
            remedy="copy it from the machine that wrote the file, or write the file here and run ray up on it",
        )
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = place.token_file
    with ExitStack() as stack:
        connection = HeadConnection(file, stack)
        connection.open()
        yield connection
