"""Machines that Ray's cluster launcher reaches with `ssh` and `rsync`.

A machine is a network namespace with an address of its own, a PID namespace, so that `ray stop` finds the machine's processes only, and a
mount namespace, in which root has a home folder of its own. Its first process is OpenSSH's `sshd`. Machines share all other folders and the
hardware.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.engines.hosts import Host, hosts
from tests.engines.report_table import ran, skipped

NAME = "OpenSSH and rsync"

_PROGRAMS = ("sshd", "ssh", "ssh-keygen", "rsync")
_UP_SECONDS = 20.0
_BOOT = """
mount --bind "$1/passwd" /etc/passwd
mount -t tmpfs tmpfs /run
mkdir /run/sshd
exec "$2" -D -f "$1/sshd_config" -E "$1/sshd.log"
"""
"""First commands of a machine. `sshd` wants its empty folder in /run, and is called by its absolute path."""

_SSHD = """
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv RAY_TMPDIR={home} LANG=C.UTF-8
"""


@dataclass(frozen=True)
class Machine:
    """A machine."""

    host: Host
    home: Path


@dataclass(frozen=True)
class SshHosts:
    """The machines, and a host from which a command reaches them.

    Attributes:
        machines: by address.
        laptop: network of the commands that use `ssh` and `rsync`.
        environment: variables of these commands.
        key: file of the private key that root of every machine accepts.
        shared: a folder that all machines have.
    """

    machines: Mapping[str, Machine]
    laptop: Host
    environment: Mapping[str, str]
    key: Path
    shared: Path

    @property
    def addresses(self) -> list[str]:
        """Addresses of the machines."""
        return list(self.machines)


@contextmanager
def ssh_hosts(count: int) -> Iterator[SshHosts]:
    """Machines while the context is open; skips without OpenSSH or rsync, and like `hosts`."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        skipped(NAME, f"no {missing[0]} on PATH", "apt-get install openssh-server rsync")
    with ExitStack() as undo:
        laptop, *members = undo.enter_context(hosts(count + 1))
        # Short, because it is in the paths of Ray's sockets.
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="rtp-", ignore_cleanup_errors=True)))
        key = folder / "key"
        _make_key(key)
        machines = {
            host.address: undo.enter_context(_machine(host, folder / str(number), key))
            for number, host in enumerate(members, start=1)
        }
        shared = folder / "shared"
        shared.mkdir()
        undo.callback(_end_all, laptop)
        ran(NAME)
        variables = {"RAY_TMPDIR": str(folder), "HOME": str(folder)}
        yield SshHosts(machines=machines, laptop=laptop, environment=variables, key=key, shared=shared)


@contextmanager
def _machine(host: Host, folder: Path, key: Path) -> Iterator[Machine]:
    home = folder / "root"
    folder.mkdir()
    _configure(folder, home, key)
    # Ray finds its own address by the route to the internet.
    subprocess.run([*host.prefix, "ip", "route", "add", "default", "dev", host.inside], check=True)
    sshd = shutil.which("sshd")
    assert sshd is not None, "looked for before"
    namespaces = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    boot = ("sh", "-e", "-c", _BOOT, "boot", str(folder), sshd)
    with subprocess.Popen([*host.prefix, *namespaces, *boot], stdin=subprocess.DEVNULL) as holder:
        try:
            _await_sshd(holder, folder)
            yield Machine(host=host, home=home)
        finally:
            _end_machine(holder)


def _configure(folder: Path, home: Path, key: Path) -> None:
    """Write what the machine has of its own: keys, the configuration of `sshd`, and users.

    `sshd`, `ssh` and the shells take a home folder from the list of users. It is another one for root, because the interpreter of the tests
    may be in root's real home folder.
    """
    _make_key(folder / "host_key")
    accepted = home / ".ssh" / "authorized_keys"
    for private in (home, accepted.parent):
        private.mkdir(mode=0o700)  # sshd refuses keys that others could write
    shutil.copy(key.with_suffix(".pub"), accepted)
    accepted.chmod(0o600)
    (folder / "sshd_config").write_text(_SSHD.format(folder=folder, home=home), encoding="utf-8")
    users = Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
    others = [line for line in users if not line.startswith("root:")]
    root = f"root:x:0:0:root:{home}:/bin/bash"
    (folder / "passwd").write_text("\n".join([root, *others, ""]), encoding="utf-8")


def _make_key(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)], check=True)


def _await_sshd(holder: subprocess.Popen[bytes], folder: Path) -> None:
    """`sshd` writes its file once it listens."""
    end = time.monotonic() + _UP_SECONDS
    while not (folder / "sshd.pid").exists():
        if holder.poll() is not None or time.monotonic() > end:
            log = folder / "sshd.log"
            raise AssertionError(f"sshd does not start: {log.read_text(encoding='utf-8') if log.exists() else ''}")
        time.sleep(0.05)


def _end_machine(holder: subprocess.Popen[bytes]) -> None:
    """End the machine's first process, and by the kernel every process of its PID namespace with it."""
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    try:
        [first] = children.read_text(encoding="ascii").split()
        os.kill(int(first), signal.SIGKILL)  # which ends `unshare` too
    except (OSError, ValueError):
        holder.kill()


def _end_all(host: Host) -> None:
    """End what is left on a host without a PID namespace: connections of `ssh`, which outlive their commands by ten seconds."""
    found = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True)
    for process in found.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGTERM)
