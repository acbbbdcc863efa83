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
from infra.spec.errors import ExitStatus
from tests.infra.lifecycle.conftest import Stack

PROJECT = "urn:pulumi:dev::ray-train-platform::"
BUCKET = f"{PROJECT}rtp:aws:Storage$rtp:aws:Bucket$aws:s3/bucket:Bucket::checkpoints"
GROUP = f"{PROJECT}rtp:aws:NodeGroup$aws:eks/nodeGroup:NodeGroup::t4"
QUEUE = f"{PROJECT}rtp:kubernetes:Objects$kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::research"
COMPONENT = f"{PROJECT}rtp:aws:NodeGroup::t4"


def step(urn: str, op: str, *paths: str) -> dict[str, Any]:
    return {"urn": urn, "op": op, "detailedDiff": {path: {"kind": "update"} for path in paths}}


def preview(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"steps": list(steps)}


def found_by(plain: Mapping[str, Any], refreshed: Mapping[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Resource, kind and paths of each difference of the account."""
    found = list(compare_previews(plain, refreshed))
    assert {one.where for one in found} <= {"account"}
    return [(one.resource, one.kind, one.paths) for one in found]


SAME = preview(step(BUCKET, "same"), step(GROUP, "same"))


def test_what_nobody_touched_or_is_not_deployed_yet_is_no_drift() -> None:
    assert found_by(SAME, SAME) == []
    waiting = preview(step(GROUP, "update", "scalingConfig.maxSize"), step(COMPONENT, "update"))
    assert found_by(waiting, waiting) == []
    assert undeployed(waiting) == 1


def test_changed_and_deleted_resources_are_found_also_where_a_change_waits() -> None:
    size, owner = "scalingConfig.maxSize", "tags.owner"
    refreshed = preview(step(BUCKET, "create"), step(GROUP, "update", size, owner))
    deleted = ("Bucket checkpoints", "deleted", ())
    assert found_by(SAME, refreshed) == [deleted, ("NodeGroup t4", "changed", (size, owner))]
    waiting = preview(step(GROUP, "update", size))
    assert found_by(waiting, refreshed) == [deleted, ("NodeGroup t4", "changed", (owner,))]
    assert found_by(waiting, preview(step(GROUP, "create"))) == [("NodeGroup t4", "deleted", ())]


def test_a_change_that_replaces_its_resource_is_one_change_and_no_deletion() -> None:
    replaced = preview(*(step(BUCKET, op, "bucket") for op in ("create-replacement", "replace", "delete-replaced")))
    assert found_by(SAME, replaced) == [("Bucket checkpoints", "changed", ("bucket",))]
    assert found_by(replaced, replaced) == []
    assert undeployed(replaced) == 1


def test_what_only_follows_from_a_deleted_resource_is_no_drift() -> None:
    """The engine does not know the ID of what it will create again, so everything that refers to it changes."""
    group = step(GROUP, "update", "subnetIds[0]", "tags.owner")
    group["newState"] = {"inputs": {"subnetIds": ["04da6b54-80e4-46f7-96ec-b56ff0331ba9"], "tags": {"owner": "me"}}}
    found = found_by(preview(step(GROUP, "same")), preview(step(BUCKET, "create"), group))
    assert found == [("Bucket checkpoints", "deleted", ()), ("NodeGroup t4", "changed", ("tags.owner",))]


def test_objects_of_the_cluster_are_left_to_the_cluster_and_a_role_beside_them_is_not() -> None:
    role = f"{PROJECT}rtp:kubernetes:Charts$aws:iam/role:Role::operator"
    refreshed = preview(step(role, "update", "tags.owner"), step(QUEUE, "create"), step(COMPONENT, "create"))
    assert found_by(preview(step(role, "same")), refreshed) == [("Role operator", "changed", ("tags.owner",))]


def test_a_release_that_somebody_uninstalled_is_found() -> None:
    """Helm's own records, by which its objects are compared with the cluster, are gone with it."""
    release = f"{PROJECT}rtp:kubernetes:Charts$kubernetes:helm.sh/v3:Release::kueue"
    (found,) = compare_previews(preview(step(release, "same")), preview(step(release, "create")))
    assert (found.where, found.resource, found.kind) == ("cluster", "Release kueue", "deleted")
    assert list(compare_previews(preview(step(release, "same")), preview(step(release, "update", "status")))) == []


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


@pytest.mark.parametrize("options", [["--yes"], ["--jobs", "go"], ["--fix", "--json"]])
def test_options_that_exclude_each_other_are_refused(options: list[str]) -> None:
    assert main(["drift", "--env", "dev", *options]) == ExitStatus.WRONG_INPUT


def _put_pulumi(folder: Path, *, has_drift: bool) -> None:
    plain, refreshed = preview(step(GROUP, "same")), preview(step(GROUP, "update", "tags.owner"))
    for name, document in {"plain": plain, "refreshed": refreshed if has_drift else plain}.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    (folder / "pulumi").write_text(
        f"#!/bin/sh\ncase \"$*\" in *export*) echo '{{}}' ;; *output*) echo '{{}}' ;;\n"
        f'up*) echo "$*" > {folder}/changed ;;\n'
        f"*--refresh*) cat {folder}/refreshed.json ;; preview*) cat {folder}/plain.json ;; *) exit 9 ;; esac\n"
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
