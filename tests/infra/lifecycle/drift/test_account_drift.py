"""What somebody changed in the account is what only a preview with a refresh would change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.commands import drift
from infra.lifecycle.drift.account import compare_preview
from infra.lifecycle.drift.difference import Difference
from infra.spec.errors import ExitStatus
from tests.infra.lifecycle.conftest import Stack

PROJECT = "urn:pulumi:dev::ray-train-platform::"
BUCKET = f"{PROJECT}rtp:aws:Storage$rtp:aws:Bucket$aws:s3/bucket:Bucket::checkpoints"
GROUP = f"{PROJECT}rtp:aws:NodeGroup$aws:eks/nodeGroup:NodeGroup::t4"
QUEUE = f"{PROJECT}rtp:kubernetes:Objects$kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::research"
COMPONENT = f"{PROJECT}rtp:aws:NodeGroup::t4"


def refreshed(urn: str, **inputs: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON of any shape
    """The step that reads a resource: its inputs in the state."""
    return {"urn": urn, "op": "refresh", "oldState": {"inputs": inputs}}


def step(urn: str, op: str, *paths: str, **live: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON of any shape
    """A step that changes some paths of what there is."""
    return {
        "urn": urn,
        "op": op,
        "detailedDiff": {path: {"kind": "update"} for path in paths},
        "oldState": {"inputs": live},
    }


def preview(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"steps": list(steps)}


def found_by(*steps: Mapping[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Resource, kind and paths of each difference of the account."""
    found = compare_preview(preview(*steps)).differences
    assert {one.where for one in found} <= {"account"}
    return [(one.resource, one.kind, one.paths) for one in found]


SIZE = "scalingConfig.maxSize"
OWNER = "tags.owner"
IN_STATE = refreshed(GROUP, scalingConfig={"maxSize": 2}, tags={"owner": "us"})


def test_what_nobody_touched_or_is_not_deployed_yet_is_no_drift() -> None:
    assert found_by(refreshed(BUCKET), IN_STATE, step(BUCKET, "same"), step(GROUP, "same")) == []
    waiting = (IN_STATE, step(GROUP, "update", SIZE, scalingConfig={"maxSize": 2}), step(COMPONENT, "update"))
    assert found_by(*waiting, step(BUCKET, "create")) == []
    assert compare_preview(preview(*waiting, step(BUCKET, "create"))).undeployed == 2
    assert compare_preview(preview(IN_STATE, step(GROUP, "delete"))).undeployed == 1


def test_changed_and_deleted_resources_are_found_also_where_a_change_waits() -> None:
    gone = (refreshed(BUCKET, bucket="b"), step(BUCKET, "create"))
    theirs = step(GROUP, "update", SIZE, OWNER, scalingConfig={"maxSize": 2}, tags={"owner": "them"})
    deleted = ("Bucket checkpoints", "deleted", ())
    assert found_by(*gone, IN_STATE, theirs) == [deleted, ("NodeGroup t4", "changed", (OWNER,))]
    assert compare_preview(preview(*gone, IN_STATE, theirs)).undeployed == 1, "the size"
    theirs["oldState"]["inputs"]["scalingConfig"]["maxSize"] = 9
    assert found_by(*gone, IN_STATE, theirs) == [deleted, ("NodeGroup t4", "changed", (SIZE, OWNER))]
    assert compare_preview(preview(*gone, IN_STATE, theirs)).undeployed == 0


@pytest.mark.parametrize(
    ("path", "state", "live"),
    [
        ('tags["k8s.io/name"]', {"tags": {"k8s.io/name": "a"}}, {"tags": {"k8s.io/name": "b"}}),
        ("subnetIds[1]", {"subnetIds": ["a", "b"]}, {"subnetIds": ["a", "c"]}),
        ("rules[0].port", {"rules": [{"port": 1}]}, {"rules": []}),
        ("tags", {}, {"tags": {"owner": "them"}}),
    ],
)
def test_a_path_leads_to_its_value(path: str, state: dict[str, Any], live: dict[str, Any]) -> None:
    found = found_by(refreshed(GROUP, **state), step(GROUP, "update", path, **live))
    assert found == [("NodeGroup t4", "changed", (path,))]
    assert found_by(refreshed(GROUP, **live), step(GROUP, "update", path, **live)) == []


def test_a_change_that_replaces_its_resource_is_one_change_and_no_deletion() -> None:
    operations = ("create-replacement", "replace", "delete-replaced")
    replaced = [step(BUCKET, op, "bucket", bucket="theirs") for op in operations]
    assert found_by(refreshed(BUCKET, bucket="ours"), *replaced) == [("Bucket checkpoints", "changed", ("bucket",))]
    assert found_by(refreshed(BUCKET, bucket="theirs"), *replaced) == []
    assert compare_preview(preview(refreshed(BUCKET, bucket="theirs"), *replaced)).undeployed == 1


def test_what_only_follows_from_a_deleted_resource_is_no_drift() -> None:
    """The engine does not know the ID of what it will create again, so everything that refers to it changes."""
    state = refreshed(GROUP, subnetIds=["s"], tags={"owner": "us"})
    group = step(GROUP, "update", "subnetIds[0]", OWNER, subnetIds=["s"], tags={"owner": "them"})
    group["newState"] = {"inputs": {"subnetIds": ["04da6b54-80e4-46f7-96ec-b56ff0331ba9"], "tags": {"owner": "us"}}}
    steps = (refreshed(BUCKET, bucket="b"), state, step(BUCKET, "create"), group)
    assert found_by(*steps) == [("Bucket checkpoints", "deleted", ()), ("NodeGroup t4", "changed", (OWNER,))]
    assert compare_preview(preview(*steps)).undeployed == 0


def test_objects_of_the_cluster_are_left_to_the_cluster_and_a_role_beside_them_is_not() -> None:
    role = f"{PROJECT}rtp:kubernetes:Charts$aws:iam/role:Role::operator"
    theirs = step(role, "update", OWNER, tags={"owner": "them"})
    objects = (refreshed(QUEUE, kind="q"), step(QUEUE, "create"), refreshed(COMPONENT), step(COMPONENT, "create"))
    assert found_by(refreshed(role), theirs, *objects) == [("Role operator", "changed", (OWNER,))]


def test_a_release_that_somebody_uninstalled_is_found() -> None:
    """Helm's own records, by which its objects are compared with the cluster, are gone with it."""
    release = f"{PROJECT}rtp:kubernetes:Charts$kubernetes:helm.sh/v3:Release::kueue"
    [found] = compare_preview(preview(refreshed(release), step(release, "create"))).differences
    assert (found.where, found.resource, found.kind) == ("cluster", "Release kueue", "deleted")
    theirs = preview(refreshed(release), step(release, "update", "status"))
    assert compare_preview(theirs) == ((), 1)
    assert compare_preview(theirs, releases=["kueue"]) == ((), 0)


@pytest.mark.parametrize("has_drift", [True, False])
def test_the_command_prints_nothing_but_json_for_a_schedule(
    stack: Stack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    has_drift: bool,
) -> None:
    """A tunnel says that it is open."""
    stack()
    _put_pulumi(tmp_path, has_drift=has_drift)
    monkeypatch.setattr("infra.lifecycle.commands.case.connection", _talking)
    assert main(["drift", "--env", "dev", "--json"]) == (1 if has_drift else 0)
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    resources = [(one["resource"], one["kind"], one["paths"]) for one in said["differences"]]
    assert resources == ([("NodeGroup t4", "changed", ["tags.owner"])] if has_drift else [])
    assert (said["environment"], said["is_complete"], said["undeployed"]) == ("dev", True, 0)
    assert "through a tunnel" in printed.err


@pytest.mark.parametrize("has_drift", [True, False])
def test_what_differs_in_the_account_is_taken_back_by_an_update_that_refreshes(
    stack: Stack, tmp_path: Path, *, has_drift: bool
) -> None:
    """Without a refresh, an update compares with the state, and says that nothing has changed."""
    stack()
    _put_pulumi(tmp_path, has_drift=has_drift)
    assert main(["drift", "--env", "dev", "--fix", "--yes"]) == 0
    changed = (tmp_path / "changed").read_text().split() if has_drift else []
    assert (changed[:1], {"--refresh", "--yes"} <= {*changed}) == ((["up"], True) if has_drift else ([], False))


def test_an_object_that_nobody_can_change_is_left_to_its_owner_and_the_rest_is_compared_and_taken_back(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulumi ends a whole preview or update at the first object that the API server refuses."""
    metadata = {"name": "gp3"}
    storage = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata}
    urn = f"{PROJECT}kubernetes:storage.k8s.io/v1:StorageClass::gp3"
    stack()
    _put_pulumi(tmp_path, has_drift=True, resources=[{"urn": urn, "type": urn.split("::")[2], "inputs": storage}])
    kept = Difference(where="cluster", resource="StorageClass gp3", kind="immutable", paths=("parameters",))
    monkeypatch.setattr(drift, "_in_cluster", lambda *_: drift._Found(by_update=(kept,), by_apply=()))
    assert main(["drift", "--env", "dev", "--fix", "--yes"]) == ExitStatus.FAILED
    previewed, changed = ((tmp_path / name).read_text() for name in ("previewed", "changed"))
    assert f"--exclude {urn}" in previewed
    assert f"--exclude {urn}" in changed


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_stack_in_the_middle_of_a_change_is_not_compared(
    stack: Stack, ran: Callable[[], list[str]], *, is_locked: bool
) -> None:
    """What the change has made and the state lacks would be differences that nobody made."""
    if is_locked:
        stack(init="could not create stack: the stack is currently locked by 1 lock(s).")
    else:
        stack(operations=[{"type": "updating", "resource": {"urn": GROUP, "type": "aws:eks/nodeGroup:NodeGroup"}}])
    assert main(["drift", "--env", "dev", "--json"]) == ExitStatus.REFUSED
    assert ran() == []


@pytest.mark.parametrize("options", [["--yes"], ["--jobs", "go"], ["--fix", "--json"]])
def test_options_that_exclude_each_other_are_refused(options: list[str]) -> None:
    assert main(["drift", "--env", "dev", *options]) == ExitStatus.WRONG_INPUT


def _put_pulumi(folder: Path, *, has_drift: bool, resources: Sequence[Mapping[str, Any]] = ()) -> None:
    theirs = step(GROUP, "update", OWNER, tags={"owner": "them"})
    document = preview(IN_STATE, theirs if has_drift else step(GROUP, "same"))
    (folder / "refreshed.json").write_text(json.dumps(document))
    (folder / "state.json").write_text(json.dumps({"deployment": {"resources": resources}}))
    (folder / "pulumi").write_text(
        f"#!/bin/sh\ncase \"$*\" in *export*) cat {folder}/state.json ;; *output*|stack\\ --cwd*) echo '{{}}' ;;\n"
        f'up*) echo "$*" > {folder}/changed ;;\n'
        f'preview*--refresh*) echo "$*" > {folder}/previewed; cat {folder}/refreshed.json ;; *) exit 9 ;; esac\n'
    )


def test_a_stack_that_does_not_exist_is_named(stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack()
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho \"error: no stack named 'dev' found\" >&2; exit 255\n")
    assert main(["drift", "--env", "dev", "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "make up ENV=dev" in said.err


def _talking(*_: object, say: Callable[[str], None]) -> AbstractContextManager[None]:
    say("the private endpoint is reached through a tunnel")
    return nullcontext()
