"""The CNI plugin that waits for a pod's NetworkPolicies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.sandbox.node.policies import plugin
from infra.lifecycle.sandbox.node.policies.register import Register

ADDRESS, UID, SANDBOX = "10.208.1.2", "1234", "abcd"
RESULT = {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": f"{ADDRESS}/24"}]}


@pytest.fixture
def register(tmp_path: Path) -> Register:
    found = Register(tmp_path)
    found.create()
    return found


def call(command: str, folder: Path) -> tuple[int, dict[str, Any] | None]:
    arguments = f"IgnoreUnknown=1;K8S_POD_NAMESPACE=research;K8S_POD_NAME=head;K8S_POD_UID={UID}"
    environment = {"CNI_COMMAND": command, "CNI_CONTAINERID": SANDBOX, "CNI_ARGS": arguments}
    return plugin.call(environment, {"cniVersion": "0.4.0", "register": str(folder), "prevResult": RESULT})


def test_a_pod_s_address_is_kept_while_it_has_one(register: Register, tmp_path: Path) -> None:
    register.confirm({ADDRESS: UID})
    assert call("ADD", tmp_path) == (0, RESULT)
    assert register.addresses() == {ADDRESS: UID}
    assert call("CHECK", tmp_path) == (0, None)
    assert call("DEL", tmp_path) == (0, None)
    assert register.addresses() == {}
    assert call("DEL", tmp_path) == (0, None)  # the runtime may repeat it


def test_a_pod_waits_for_its_policies(register: Register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_SECONDS", 0.05)
    for confirmed in ({}, {ADDRESS: "another pod"}, {"10.208.1.3": UID}):
        register.confirm(confirmed)
        status, answer = call("ADD", tmp_path)
        assert status == 1, confirmed
        assert answer is not None
        assert "NetworkPolicies of pod research/head do not hold" in answer["msg"]


def test_the_program_speaks_the_protocol() -> None:
    done = subprocess.run(
        [sys.executable, "-m", plugin.__name__],
        input=json.dumps({"cniVersion": "0.4.0"}),
        env={**os.environ, "CNI_COMMAND": "VERSION"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "0.4.0" in json.loads(done.stdout)["supportedVersions"]
