"""Machines that Ray's cluster launcher reaches by `ssh` and `rsync`.

A machine is a network namespace with an address of its own, a PID namespace, so that `ray stop` finds the machine's processes only, and a
home folder. `ssh` and `rsync` are doubles on PATH: they take Ray's command lines and ask a server in this process, which runs commands on
the machine. All else, what is copied, run and started, is real.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.engines.hosts import Host, hosts

_CLIENT = Path(__file__).with_name("ssh_double.py")
_FDS = 3
_LONGEST_REQUEST = 2**20


@dataclass(frozen=True)
class Machine:
    """A machine.

    Attributes:
        host: its network.
        home: its home folder.
        init: process whose namespaces it has; the machine ends with it.
    """

    host: Host
    home: Path
    init: int

    def command(self, *command: str) -> list[str]:
        """A command line that runs on it."""
        return ["nsenter", f"--target={self.init}", "--pid", "--mount", "--net", "--", *command]


@dataclass(frozen=True)
class SshHosts:
    """The machines, and how a command reaches them.

    Attributes:
        machines: by address.
        environment: variables of a command that uses `ssh` and `rsync`.
        shared: a folder that all machines have.
    """

    machines: Mapping[str, Machine]
    environment: Mapping[str, str]
    shared: Path

    @property
    def addresses(self) -> list[str]:
        """Addresses of the machines."""
        return list(self.machines)


@contextmanager
def ssh_hosts(count: int) -> Iterator[SshHosts]:
    """Machines while the context is open; skips like `hosts`."""
    with ExitStack() as undo:
        members = undo.enter_context(hosts(count))
        # Short, because it is in the paths of Ray's sockets.
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="rtp-", ignore_cleanup_errors=True)))
        tools = folder / "bin"
        tools.mkdir()
        server = folder / "sshd"
        for name in ("ssh", "rsync"):
            (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S {_CLIENT} {server} {name} "$@"\n')
            (tools / name).chmod(0o755)
        environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
        machines = {
            host.address: undo.enter_context(_machine(host, folder / str(number), tools))
            for number, host in enumerate(members, start=1)
        }
        shared = folder / "shared"
        shared.mkdir()
        undo.enter_context(_serving(server, machines, environment))
        laptop = {**environment, "RAY_TMPDIR": str(folder), "HOME": str(folder)}
        yield SshHosts(machines=machines, environment=laptop, shared=shared)


@contextmanager
def _machine(host: Host, home: Path, tools: Path) -> Iterator[Machine]:
    home.mkdir()
    # Ray runs commands in login shells, which have a PATH of their own.
    (home / ".bashrc").write_text(f"export PATH={tools}:$PATH\n", encoding="utf-8")
    # Ray finds its own address by the route to the internet.
    subprocess.run([*host.prefix, "ip", "route", "add", "default", "dev", host.inside], check=True)
    holder = subprocess.Popen(
        [
            *host.prefix,
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            "echo up; exec sleep infinity",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        [init] = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text(encoding="ascii").split()
        try:
            yield Machine(host=host, home=home, init=int(init))
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(init), signal.SIGKILL)  # and, by the kernel, every process of the machine
            holder.kill()


@contextmanager
def _serving(path: Path, machines: Mapping[str, Machine], environment: Mapping[str, str]) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=_serve, args=(connection, machines, environment), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _serve(connection: socket.socket, machines: Mapping[str, Machine], environment: Mapping[str, str]) -> None:
    """Run a command on a machine with the client's streams; it ends with the client, as a command of a broken SSH connection does."""
    with connection:
        message, fds, _, _ = socket.recv_fds(connection, _LONGEST_REQUEST, _FDS)
        try:
            request = json.loads(message)
            machine = machines[request["host"]]
            if "copy" in request:
                status = _copy(Path(request["copy"]), machine, request["to"])
            else:
                status = _run(connection, request["command"], machine, environment, fds)
        finally:
            for fd in fds:
                os.close(fd)
        with suppress(OSError):
            connection.sendall(bytes([status & 0xFF]))


def _run(
    connection: socket.socket, command: list[str], machine: Machine, environment: Mapping[str, str], fds: list[int]
) -> int:
    with subprocess.Popen(
        machine.command(*command),
        cwd=machine.home,
        env={
            **environment,
            "HOME": str(machine.home),
            "RAY_TMPDIR": str(machine.home),
            "USER": "root",
            "LANG": "C.UTF-8",
        },
        stdin=fds[0],
        stdout=fds[1],
        stderr=fds[2],
        start_new_session=True,
    ) as process:
        while process.poll() is None:
            readable, _, _ = select.select([connection], [], [], 0.1)
            if readable and not connection.recv(1):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode


def _copy(source: Path, machine: Machine, target: str) -> int:
    """What `rsync -a` does for a file, and with a slash at the end for the contents of a folder, without excluded files."""
    destination = machine.home / target.removeprefix("~/") if target.startswith("~/") else Path(target)
    destination.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, destination, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, destination)
    return 0
