"""What a platform team does with an environment that exists, in the real Pulumi engine: drift, upgrade, teardown, test clusters."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kube.api import KubernetesApi
from infra.kube.connection import connect_with
from infra.spec.cluster_names import KUEUE_API
from tests.engines.pulumi_engine import Engine, engine
from tests.infra.aws.graphs import settings_of

pytestmark = pytest.mark.timeout(2700)

_SECONDS = 300.0

QUEUE = {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": "research"}}


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Development, up, without backups of MLflow, which no pod here would take; skips without the engine."""
    dev = settings_of("dev")
    with engine(tmp_path, dev, monkeypatch) as made:
        settings = made.checkout.root / "infra/environments/dev.yaml"
        settings.write_text(f"{settings.read_text()}\nmlflow: {{ backup: suspended }}\n", encoding="utf-8")
        made.pulumi("stack", "init", "dev")
        _succeed(made, "up", "--env", "dev", "--yes")
        yield made


def test_drift_is_found_where_it_was_planted_and_a_cluster_that_does_not_answer_is_given_up(
    stack: Engine, tmp_path: Path
) -> None:
    none = stack.lifecycle("drift", "--env", "dev", "--json")
    assert (none.returncode, json.loads(none.stdout)["differences"]) == (0, []), none.stdout
    bucket, group = (
        _urn(stack, kind) for kind in ("s3/bucket:Bucket::checkpoints", "cloudwatch/logGroup:LogGroup::cluster")
    )
    stack.provider.outside = {bucket: {"tags": {"owner": "somebody"}}, group: None}
    api = _api(tmp_path)
    api.patch(QUEUE, {"spec": {"queueingStrategy": "StrictFIFO"}})
    found = stack.lifecycle("drift", "--env", "dev", "--json")
    assert (found.returncode, found.stdout[:1]) == (1, "{"), found.stdout
    differences = {(one["resource"], one["kind"]) for one in json.loads(found.stdout)["differences"]}
    assert differences == {
        ("Bucket checkpoints", "changed"),
        ("LogGroup cluster", "deleted"),
        ("ClusterQueue research", "changed"),
    }
    stack.provider.outside = {}
    stack.api_server.close()
    unanswered = stack.lifecycle("drift", "--env", "dev", "--json")
    assert unanswered.returncode != 0, unanswered.stdout
    assert "does not answer" in unanswered.stdout
    refused = stack.lifecycle("down", "--env", "dev", "--yes")
    assert refused.returncode == 3, refused.stdout
    assert "UNREACHABLE=1" in refused.stdout
    given_up = stack.lifecycle("down", "--env", "dev", "--yes", "--unreachable")
    assert given_up.returncode == 0, given_up.stdout
    assert stack.provider.ids == {}


def test_an_upgrade_goes_on_where_it_failed_replaces_nothing_and_takes_a_step_back(stack: Engine) -> None:
    upgrade = ("upgrade", "--env", "dev", "--canary", "a10g")
    refused = stack.lifecycle(*upgrade, "--to", "9.9.9")
    assert refused.returncode == 3
    assert "git checkout v9.9.9" in refused.stdout
    _release(stack, "0.2.0")
    plan = stack.lifecycle(*upgrade, "--plan")
    assert plan.returncode == 0, plan.stdout
    assert "platform: 0.1.0 to 0.2.0" in plan.stdout
    places = [
        plan.stdout.index(f". {name}:") for name in ("operators", "system-nodes", "canary", "gpu-nodes", "platform")
    ]
    assert places == sorted(places), plan.stdout
    before = len(stack.provider.calls)
    stack.provider.refusals = {("update", "eks/nodeGroup"): 1}
    failed = stack.lifecycle(*upgrade, "--yes")
    assert failed.returncode != 0
    assert "ResourceInUseException" in failed.stdout
    assert "step system-nodes failed" in failed.stdout
    assert {name.partition("-")[0] for name in _updated_groups(stack, before)} <= {"system", "heads"}, failed.stdout
    _succeed(stack, *upgrade, "--yes")
    assert {call for call, _ in stack.provider.calls[before:]} == {"update"}
    updated = _updated_groups(stack, before)
    assert len(updated) == len(set(updated)), "a step that was done is done again"
    order = list(dict.fromkeys(name.partition("-")[0] for name in updated))
    assert (set(order[:2]), order[2:]) == ({"system", "heads"}, ["a10g", "t4"])
    _check_outputs(stack, "0.2.0")
    again = stack.lifecycle(*upgrade, "--yes")
    assert again.returncode == 0, again.stdout
    assert "nothing to do" in again.stdout
    _release(stack, "0.1.0")
    back = stack.lifecycle(*upgrade, "--yes")
    assert back.returncode == 3
    assert "the platform would go back from 0.2.0 to 0.1.0" in back.stdout
    before = len(stack.provider.calls)
    _succeed(stack, *upgrade, "--rollback", "--only", "canary", "--yes")
    assert {name.partition("-")[0] for name in _updated_groups(stack, before)} == {"a10g"}
    _check_outputs(stack, "0.2.0")
    assert stack.lifecycle(*upgrade, "--yes").returncode == 3, "a step that was taken back allows a downgrade"


def _updated_groups(stack: Engine, since: int) -> list[str]:
    """Names of the node groups that were updated, in order."""
    changes = stack.provider.calls[since:]
    return [urn.rpartition("::")[2] for call, urn in changes if call == "update" and "aws:eks/nodeGroup:" in urn]


def _check_outputs(stack: Engine, platform: str) -> None:
    outputs = json.loads(stack.pulumi("stack", "output", "--json", "--stack", "dev").stdout)
    assert (outputs["platform"], json.loads(outputs["release"])["platform"]) == (platform, platform)


def test_a_teardown_outlasts_ctrl_c_and_what_aws_does_not_let_go_of_at_once(stack: Engine, tmp_path: Path) -> None:
    deletion = stack.provider.hold("eks/nodeGroup", "delete")
    with stack.started("down", "--env", "dev", "--yes", output=tmp_path / "output") as down:
        assert deletion.made.wait(_SECONDS), (tmp_path / "output").read_text()
        os.killpg(down.pid, signal.SIGINT)
        assert stack.provider.cancelled.wait(_SECONDS)
        deletion.answered.set()
        assert down.wait(_SECONDS) == 130
    assert any("aws:eks/cluster:" in urn for urn in stack.provider.ids)
    stack.provider.refusals = {("delete", "ec2/securityGroup"): 1, ("delete", "ec2/subnet"): 1}
    ended = stack.lifecycle("down", "--env", "dev", "--yes")
    assert ended.returncode == 0, ended.stdout
    assert "attempt 2 of 3" in ended.stdout
    assert "DependencyViolation" in ended.stdout
    assert stack.provider.ids == {}


def test_a_test_cluster_that_fails_its_test_is_taken_down(stack: Engine) -> None:
    """There are no nodes here, so the conformance tests cannot pass."""
    before = set(stack.provider.ids)
    options = ("--owner", "me@example.com", "--account", settings_of("dev").aws.allowed_accounts[0], "--ttl", "1h")
    ended = stack.lifecycle("cluster-test", *options, "--name", "test-4711")
    assert ended.returncode != 0
    assert "== conformance" in ended.stdout, ended.stdout
    assert "== down" in ended.stdout
    assert set(stack.provider.ids) == before
    listed = json.loads(stack.pulumi("stack", "ls", "--json").stdout)
    assert [one["name"].rpartition("/")[2] for one in listed] == ["dev"]


def _succeed(stack: Engine, *arguments: str) -> None:
    ran = stack.lifecycle(*arguments)
    assert ran.returncode == 0, ran.stdout


def _urn(stack: Engine, end: str) -> str:
    (found,) = [urn for urn in stack.provider.ids if urn.endswith(end)]
    return found


def _api(folder: Path) -> KubernetesApi:
    return connect_with(next(folder.rglob("kubeconfig*")))


def _release(stack: Engine, version: str) -> None:
    """Give the checkout another version and node image, as that of another release has; our images keep their digests."""
    root = stack.checkout.root
    manifest = root / "infra/spec/release.yaml"
    image = f"1.35.4-2026{version.split('.')[1]:0>2}01"
    images = f"releases: {{AL2023_x86_64_STANDARD: {image}, AL2023_x86_64_NVIDIA: {image}}}"
    text = re.sub(r"releases: {AL2023.*}", images, manifest.read_text())
    text = re.sub(r"^((?:platform: |    tag: ))0\.[12]\.0", rf"\g<1>{version}", text, flags=re.MULTILINE)
    manifest.write_text(text, encoding="utf-8")
