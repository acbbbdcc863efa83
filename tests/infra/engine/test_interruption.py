"""`make up` that ends in the middle of an update, in the real Pulumi engine, and what finishes it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import yaml

from infra.kube.connection import connect_with
from tests.engines.pulumi_engine import Engine, engine
from tests.infra.aws.graphs import settings_of

pytestmark = pytest.mark.timeout(5400)

UP = ("up", "--env", "dev", "--yes")
KILLS = 30
_SECONDS = 300.0
_EARLIEST, _LATEST = 8.0, 60.0
"""Seconds after which an update is killed: an installation takes a minute."""


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Development in an empty account; skips without the engine."""
    with engine(tmp_path, settings_of("dev"), monkeypatch) as made:
        made.pulumi("stack", "init", "dev")
        yield made


def created(stack: Engine, kind: str) -> int:
    return sum(call == "create" and f"aws:{kind}:" in urn for call, urn in stack.provider.calls)


def is_locked(stack: Engine) -> bool:
    locks = Path(stack.variables["PULUMI_BACKEND_URL"].removeprefix("file://")) / ".pulumi" / "locks"
    return any(locks.rglob("*.json"))


def test_ctrl_c_waits_for_pulumi_to_end_in_order_and_the_same_command_finishes(stack: Engine, tmp_path: Path) -> None:
    creation = stack.provider.hold("eks/cluster")
    with stack.started(*UP, output=tmp_path / "output") as up:
        assert creation.made.wait(_SECONDS)
        assert is_locked(stack)
        os.killpg(up.pid, signal.SIGINT)
        assert stack.provider.cancelled.wait(_SECONDS)
        creation.answered.set()
        assert up.wait(_SECONDS) == 130
        assert not is_locked(stack), "pulumi still runs"
    again = stack.lifecycle(*UP)
    assert again.returncode == 0, again.stdout
    assert created(stack, "eks/cluster") == 1


def test_after_a_kill_the_commands_of_the_refusal_save_what_was_created(stack: Engine, tmp_path: Path) -> None:
    creation = stack.provider.hold("eks/cluster")
    with stack.started(*UP, output=tmp_path / "output") as up:
        assert creation.made.wait(_SECONDS)
        os.killpg(up.pid, signal.SIGKILL)
        up.wait()
    creation.answered.set()
    refused = stack.lifecycle(*UP)
    assert refused.returncode == 3, refused.stdout
    assert "creating aws:eks/cluster:Cluster" in refused.stdout
    for command in _commands(stack, refused.stdout):
        done = stack.pulumi(*command, "--yes")
        assert done.returncode == 0, f"{command}\n{done.stdout}"
    finished = stack.lifecycle(*UP)
    assert finished.returncode == 0, finished.stdout
    assert created(stack, "eks/cluster") == 1


def test_a_node_group_that_aws_deleted_for_a_killed_update_comes_back_with_the_settings_of_before(
    stack: Engine, tmp_path: Path
) -> None:
    """The state still has the group, and the settings too: without a look at AWS there is nothing to change."""
    assert stack.lifecycle(*UP).returncode == 0
    [group] = [urn for urn in stack.provider.ids if urn.endswith("$aws:eks/nodeGroup:NodeGroup::a10g")]
    file = stack.checkout.root / "infra/environments/dev.yaml"
    before = file.read_text()
    sections = yaml.safe_load(before)
    sections["gpu_groups"] = [one for one in sections["gpu_groups"] if one["name"] != "a10g"]
    for team in sections["teams"]:
        del team["gpus"]["a10g"]
    file.write_text(yaml.safe_dump(sections))
    deletion = stack.provider.hold("eks/nodeGroup", "delete")
    with stack.started(*UP, output=tmp_path / "output") as up:
        assert deletion.made.wait(_SECONDS), (tmp_path / "output").read_text()
        os.killpg(up.pid, signal.SIGKILL)
        up.wait()
    deletion.answered.set()
    stack.pulumi("cancel", "--yes", "--stack", "dev")
    file.write_text(before)
    again = stack.lifecycle(*UP)
    assert again.returncode == 0, again.stdout
    assert group in stack.provider.ids


def _commands(stack: Engine, refusal: str) -> list[list[str]]:
    """Arguments of the commands of a refusal in the order that it gives, with the IDs that only AWS knows.

    An import is left out if AWS has no such resource, as the refusal says.
    """
    lines = re.findall(r"pulumi ((?:cancel|refresh|import) .*)", refusal)
    imports = [shlex.split(line) for line in lines if line.startswith("import")]
    found = []
    for words in imports:
        urn = next((urn for urn in stack.provider.ids if urn.endswith(f"${words[1]}::{words[2]}")), None)
        if urn is not None:
            found.append([*words[:3], stack.provider.ids[urn] if words[3] == "ID" else words[3], *words[4:]])
    cancel, refresh = (shlex.split(line) for line in lines if not line.startswith("import"))
    return [cancel, *found, refresh]


def test_an_update_that_is_killed_at_any_moment_is_finished_by_make_up(stack: Engine, tmp_path: Path) -> None:
    """Installations and upgrades of charts whose hooks and pods take their time, and everything before and after them."""
    moments, kills, rounds = Random(0), 0, 0
    settings = stack.checkout.root / "infra/environments/dev.yaml"
    plain = settings.read_text()
    while kills < KILLS:
        with stack.started(*UP, output=tmp_path / "output") as up:
            try:
                status = up.wait(moments.uniform(_EARLIEST, _LATEST))
            except subprocess.TimeoutExpired:
                os.killpg(up.pid, signal.SIGKILL)
                up.wait()
                kills += 1
                stack.pulumi("cancel", "--yes", "--stack", "dev")
                continue
        said = (tmp_path / "output").read_text()
        if status == 0:
            rounds += 1
            # Every chart has images.
            settings.write_text(f"{plain}\nmirrors: {{ images: mirror-{rounds}.example.com }}\n")
        else:
            assert status == 3, said
            for command in _commands(stack, said):
                done = stack.pulumi(*command, "--yes")
                assert done.returncode == 0, f"{command}\n{done.stdout}"
    _finish(stack)
    twice = [urn for urn in stack.provider.ids if (made := _balance(stack, urn)) != 1 and made]
    assert twice == []
    preview = stack.pulumi("preview", "--stack", "dev", "--expect-no-changes")
    assert preview.returncode == 0, preview.stdout
    api = connect_with(next(tmp_path.rglob("kubeconfig*")))
    unfinished = api.items("v1", "Secret", labels="owner=helm,status notin (deployed,superseded)")
    assert [one["metadata"]["name"] for one in unfinished] == []


def _finish(stack: Engine) -> None:
    """`make up` without a kill, once what a refusal names is done."""
    last = stack.lifecycle(*UP)
    if last.returncode == 3:
        for command in _commands(stack, last.stdout):
            stack.pulumi(*command, "--yes")
        last = stack.lifecycle(*UP)
    assert last.returncode == 0, last.stdout


def _balance(stack: Engine, urn: str) -> int:
    """How often a resource was created, less how often it was deleted."""
    calls = [call for call, one in stack.provider.calls if one == urn]
    return calls.count("create") - calls.count("delete")
