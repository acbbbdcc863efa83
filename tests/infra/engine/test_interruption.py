"""`make up` that ends in the middle of an update, in the real Pulumi engine, and what finishes it."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.pulumi_engine import Engine, engine
from tests.infra.aws.graphs import settings_of

pytestmark = pytest.mark.timeout(1800)

UP = ("up", "--env", "dev", "--yes")
_SECONDS = 300.0


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
