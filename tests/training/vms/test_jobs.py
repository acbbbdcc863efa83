"""Jobs on a cluster that Ray's launcher has started from our file, on machines over SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from infra.spec.release_rules import ROOT
from observability.runlog import TrainingStarted, read_all, select
from tests.engines.report_table import ran
from tests.engines.ssh_hosts import SshHosts, ssh_hosts
from tests.processes import run_command
from tests.training.cluster.commands import interruptible, read_until
from tests.training.cluster.team_cluster import target as dev_stack
from tests.training.vms.clusters import own_cluster
from training.vms import own
from training.vms.place import METADATA_KEY

pytestmark = pytest.mark.extended

_RAY = Path(sys.executable).with_name("ray")
_UP_SECONDS = 300.0
_QUICK = ("--num-workers", "2", "--epochs", "1")


@dataclass(frozen=True)
class Lab:
    """A cluster that is up."""

    file: Path
    runs: Path
    hosts: SshHosts

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.hosts.environment}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command from which the machines can be reached, to its end."""
        words = [*self.hosts.laptop.prefix, *command]
        return run_command(words, cwd=ROOT, env=self.environment, seconds=_UP_SECONDS)

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `python -m training` to its end."""
        return self.run(sys.executable, "-m", "training", name, "--ray", str(self.file), *arguments)

    @contextmanager
    def started(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        words = [*self.hosts.laptop.prefix, *interruptible(name, "--ray", str(self.file), *arguments)]
        with subprocess.Popen(
            words,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()  # of a test that failed


@pytest.fixture(scope="module")
def machines() -> Iterator[Lab]:
    """A head and a worker, started by `ray up`; the environment is this one, which the setup script finds up to date."""
    with ssh_hosts(2) as hosts:
        head, worker = hosts.addresses
        runs = hosts.shared / "runs"
        runs.mkdir()
        cluster = own_cluster(head=head, workers=(worker,), ssh_user="root", ssh_key=hosts.key, runs=runs)
        document = own.render(cluster, platform=dev_stack().release.platform)
        token = hosts.shared / "token"
        token.write_text("a" * 64, encoding="ascii")
        place = document["metadata"][METADATA_KEY]
        document["file_mounts"][f"{place['home']}/token"] = place["token_file"] = str(token)
        for machine in hosts.machines.values():
            checkout = machine.home / ".rtp" / cluster.name / "checkout"
            checkout.mkdir(parents=True)
            (checkout / ".venv").symlink_to(Path(sys.executable).parents[1])
        file = hosts.shared / "lab.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        lab = Lab(file=file, runs=runs, hosts=hosts)
        up = lab.run(str(_RAY), "up", str(file), "--yes", "--no-config-cache")
        assert up.returncode == 0, up.stdout[-3000:] + up.stderr[-1000:]
        ran("Ray cluster")
        yield lab


def test_a_run_trains_on_the_worker_and_its_status_is_the_command_s(machines: Lab) -> None:
    # Over 20 CPU seconds: the run is on a Ray cluster of two machines, each with an environment that starts cold.
    # The head offers no CPU, so ranks are on the worker, which the head's autoscaler has started over SSH.
    done = machines.command("train", *_QUICK, "--name", "first")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "job first submitted to the Ray cluster" in done.stdout
    assert "test accuracy" in done.stdout
    assert "INFO" not in done.stderr, "Ray's own log of the connection"
    assert (machines.runs / "first" / "model" / "model.safetensors").is_file()
    again = machines.command("logs", "first")
    assert again.returncode == 0
    assert "test accuracy" in again.stdout


def test_a_refused_run_has_the_driver_s_status(machines: Lab) -> None:
    data = ("--dataset", "image_folder", "--data-path", "/nonexistent", "--model", "resnet18")
    refused = machines.command("train", *_QUICK, "--name", "refused", *data)
    assert refused.returncode == 3, refused.stdout[-3000:] + refused.stderr[-2000:]
    assert "the driver exited with code 3" in refused.stdout
    assert machines.command("resume", "nowhere").returncode == 2


def test_a_job_is_left_running_followed_while_another_command_stops_it_and_its_run_resumed(machines: Lab) -> None:
    # Over 20 CPU seconds: drivers on other machines, which each start Python, torch and Ray anew, are what it is about.
    with machines.started("train", "--num-workers", "1", "--name", "long", "--epochs", "500") as command:
        _interrupt(command, machines, "long")
    twice = machines.command("train", *_QUICK, "--name", "long")
    assert twice.returncode == 3
    assert "run long is running" in twice.stderr

    with machines.started("logs", "long") as follower:
        read_until(follower, "step ")
        assert machines.command("stop", "long").returncode == 0
        rest = follower.communicate(timeout=_UP_SECONDS)[0]
    assert follower.returncode == 130, rest
    assert f"make resume RAY={machines.file} JOB=long" in rest
    assert machines.command("stop", "long").returncode == 3, "it is over"
    listed = machines.command("jobs").stdout
    assert "stopped" in next(line for line in listed.splitlines() if line.startswith("long "))

    with machines.started("resume", "long", "--set", "loop.clip_norm=2") as command:
        _interrupt(command, machines, "long")
    assert machines.command("stop", "long").returncode == 0
    first, second = [event.start_step for event in select(read_all(machines.runs / "long"), TrainingStarted)]
    assert first == 0 < second, "resumed from the checkpoint of the stop"


def _interrupt(command: subprocess.Popen[str], machines: Lab, run: str) -> None:
    read_until(command, "step ")
    command.send_signal(signal.SIGINT)
    said = command.communicate(timeout=_UP_SECONDS)[0]
    assert command.returncode == 130, said
    assert f"make logs RAY={machines.file} JOB={run}" in said
