"""What somebody changed in the account is what only a preview with a refresh would change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.drift.account import compare_previews, undeployed
from infra.lifecycle.drift.difference import Difference
from tests.infra.lifecycle.conftest import Stack

PROJECT = "urn:pulumi:dev::ray-train-platform::"
BUCKET = f"{PROJECT}rtp:aws:Storage$rtp:aws:Bucket$aws:s3/bucket:Bucket::checkpoints"
GROUP = f"{PROJECT}rtp:aws:NodeGroup$aws:eks/nodeGroup:NodeGroup::t4"
QUEUE = f"{PROJECT}rtp:kubernetes:Objects$kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::research"
COMPONENT = f"{PROJECT}rtp:aws:NodeGroup::t4"


def step(urn: str, op: str, *paths: str) -> dict[str, Any]:
    """A step of a preview."""
    return {"urn": urn, "op": op, "detailedDiff": {path: {"kind": "update"} for path in paths}}


def preview(*steps: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a preview."""
    return {"steps": list(steps)}


def test_an_account_that_nobody_touched_has_no_drift() -> None:
    same = preview(step(BUCKET, "same"), step(GROUP, "same"))
    assert list(compare_previews(same, same)) == []


def test_what_is_not_deployed_yet_is_no_drift() -> None:
    waiting = preview(step(GROUP, "update", "scalingConfig.maxSize"), step(COMPONENT, "update"))
    assert list(compare_previews(waiting, waiting)) == []
    assert undeployed(waiting) == 1


def test_a_changed_and_a_deleted_resource_are_found() -> None:
    plain = preview(step(BUCKET, "same"), step(GROUP, "same"))
    refreshed = preview(step(BUCKET, "create"), step(GROUP, "update", "scalingConfig.maxSize", "tags.owner"))
    assert list(compare_previews(plain, refreshed)) == [
        Difference(where="account", resource="Bucket checkpoints", kind="deleted"),
        Difference(
            where="account", resource="NodeGroup t4", kind="changed", paths=("scalingConfig.maxSize", "tags.owner")
        ),
    ]


def test_a_change_beside_one_that_waits_is_found() -> None:
    plain = preview(step(GROUP, "update", "scalingConfig.maxSize"))
    refreshed = preview(step(GROUP, "update", "scalingConfig.maxSize", "tags.owner"))
    (found,) = compare_previews(plain, refreshed)
    assert found.paths == ("tags.owner",)


def test_a_deleted_resource_is_found_although_a_change_of_it_waits() -> None:
    plain = preview(step(GROUP, "update", "scalingConfig.maxSize"))
    (found,) = compare_previews(plain, preview(step(GROUP, "create")))
    assert (found.resource, found.kind) == ("NodeGroup t4", "deleted")


def test_a_change_that_replaces_its_resource_is_one_change_and_no_deletion() -> None:
    replaced = [step(BUCKET, op, "bucket") for op in ("create-replacement", "replace", "delete-replaced")]
    plain = preview(step(BUCKET, "same"))
    assert list(compare_previews(plain, preview(*replaced))) == [
        Difference(where="account", resource="Bucket checkpoints", kind="changed", paths=("bucket",))
    ]
    assert list(compare_previews(preview(*replaced), preview(*replaced))) == []
    assert undeployed(preview(*replaced)) == 1


def test_what_only_follows_from_a_deleted_resource_is_no_drift() -> None:
    """The engine does not know the ID of what it will create again, so everything that refers to it changes."""
    group = step(GROUP, "update", "subnetIds[0]", "tags.owner")
    group["newState"] = {"inputs": {"subnetIds": ["04da6b54-80e4-46f7-96ec-b56ff0331ba9"], "tags": {"owner": "me"}}}
    found = list(compare_previews(preview(step(GROUP, "same")), preview(step(BUCKET, "create"), group)))
    assert [(one.resource, one.paths) for one in found] == [
        ("Bucket checkpoints", ()),
        ("NodeGroup t4", ("tags.owner",)),
    ]


def test_resources_of_aws_in_a_component_of_kubernetes_are_compared() -> None:
    role = f"{PROJECT}rtp:kubernetes:Charts$aws:iam/role:Role::operator"
    (found,) = compare_previews(preview(step(role, "same")), preview(step(role, "update", "tags.owner")))
    assert found.resource == "Role operator"


def test_objects_of_the_cluster_are_left_to_the_cluster() -> None:
    assert list(compare_previews(preview(), preview(step(QUEUE, "create"), step(COMPONENT, "create")))) == []


@pytest.mark.parametrize("has_drift", [True, False])
def test_the_command_prints_json_for_a_schedule(
    stack: Stack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    has_drift: bool,
) -> None:
    stack()
    plain, refreshed = preview(step(GROUP, "same")), preview(step(GROUP, "update", "tags.owner"))
    for name, document in {"plain": plain, "refreshed": refreshed if has_drift else plain}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "pulumi").write_text(
        f"#!/bin/sh\ncase \"$*\" in *export*) echo '{{}}' ;; *output*) echo '{{}}' ;;\n"
        f"*--refresh*) cat {tmp_path}/refreshed.json ;; preview*) cat {tmp_path}/plain.json ;; *) exit 9 ;; esac\n"
    )
    monkeypatch.setattr("infra.lifecycle.commands.drift.connected", _connected)
    assert main(["drift", "--env", "dev", "--json"]) == (1 if has_drift else 0)
    said = json.loads(capsys.readouterr().out)
    resources = [(one["resource"], one["kind"], one["paths"]) for one in said["differences"]]
    assert resources == ([("NodeGroup t4", "changed", ["tags.owner"])] if has_drift else [])
    assert (said["environment"], said["is_complete"], said["undeployed"]) == ("dev", True, 0)


def test_nothing_but_json_is_on_standard_output(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tunnel says that it is open."""
    stack(says="echo '{}'")
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho '{}'\n")
    monkeypatch.setattr("infra.lifecycle.commands.case.connection", _talking)
    assert main(["drift", "--env", "dev", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["differences"] == []
    assert "through a tunnel" in said.err


def test_a_stack_that_does_not_exist_is_named(stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack()
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho \"error: no stack named 'dev' found\" >&2; exit 255\n")
    assert main(["drift", "--env", "dev", "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "make up ENV=dev" in said.err


def _connected(_case: object, *, say: object) -> AbstractContextManager[None]:
    return nullcontext()


def _talking(*_: object, say: Callable[[str], None]) -> AbstractContextManager[None]:
    say("the private endpoint is reached through a tunnel")
    return nullcontext()
