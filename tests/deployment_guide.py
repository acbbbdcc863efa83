"""The commands of docs/DEPLOYMENT.md, and where each is tested."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.docs.commands.found import ROOT, read

GUIDE = ROOT / "docs" / "DEPLOYMENT.md"
ACCOUNT_ONLY = "## What the tests cover"
"""Section with the commands that no test runs."""

_COMMAND = re.compile(r"(make|pulumi|aws|docker|kubectl|python) \S.*")


class Step(NamedTuple):
    """A command of the guide, as a test runs it.

    Attributes:
        command: as the guide has it.
        confirmation: what a user without a terminal adds.
        says: part of its output.
        status: its exit status.
    """

    command: str
    confirmation: str = ""
    says: str = ""
    status: int = 0


WITHOUT_ACCOUNT = (
    Step("make graph ENV=prod", says="aws.eks.NodeGroup"),
    Step("make graph ENV=prod FILE=prod.svg"),
    Step("make cost ENV=prod", says="nodes h100, p5.48xlarge"),
    Step("make release-check ENV=prod", says="2 unresolved entries, which prod refuses", status=2),
    Step("make outputs ENV=dev RECORDED=1 FILE=outputs.json"),
    Step("make job ENV=dev TEAM=research OUTPUTS=outputs.json", says="kind: RayJob"),
    Step(
        "python -m infra.lifecycle test-environment --name test-4711 --owner you@example.com --account 111122223333",
        says="test-4711.yaml",
    ),
)
"""Commands that need neither account nor engine, in order."""

PREPARE = (
    Step("make state-bucket ENV=dev", says="pulumi login 's3://rtp-dev-state-111122223333?region=us-east-1'"),
    Step("make deployer-policy ENV=dev FILE=policy.json", says="policy-1.json"),
    Step("pulumi stack init dev"),
    Step("make preview ENV=dev", says="to create"),
)
BRING_UP = (
    Step("make up ENV=dev", "YES=1", says="the repositories come first"),
    Step("make outputs ENV=dev", says="cluster rtp-dev, Kubernetes 1.35"),
)
UPDATE = (
    Step("make hold ENV=dev"),
    Step("make hold ENV=dev DRAIN=1"),
    Step("pulumi up -s dev", "--yes"),
    Step("make release-queues ENV=dev"),
)
DESTROY = (Step("make down ENV=dev", "YES=1"),)
UNPROTECT = (Step("pulumi state unprotect --all -s staging", "--yes"),)
BARE = (
    Step("pulumi up -s prod", "--yes", says="this update registers the AWS resources only"),
    Step("make image PUSH=1 ENV=prod", says="written to release.yaml; commit it"),
    Step("pulumi up -s prod", "--yes"),
)
IN_THE_ENGINE = (*PREPARE, *BRING_UP, *UPDATE, *DESTROY, *UNPROTECT, *BARE)
"""Commands that `tests/infra/engine` runs."""

ELSEWHERE: Mapping[str, str] = {
    "make data-sync SRC=s3://corpus/imagenet DST=datasets/imagenet ENV=dev": "tests/platform_charts/test_cluster_data_sync.py",
    "make backup ENV=dev": "tests/platform_charts/test_cluster_backup.py",
    "make restore-drill ENV=dev": "tests/platform_charts/test_cluster_backup.py",
    'make open WHAT="grafana prometheus" ENV=…': "tests/training/cluster/uis/test_cluster_uis.py",
    "make promote FROM=dev TO=staging": "tests/infra/lifecycle/image/test_promote.py",
    "make promote FROM=staging TO=prod FROM_PROFILE=staging TO_PROFILE=prod": "tests/infra/lifecycle/image/test_promote.py",
    "make up ENV=prod FROM=staging": "tests/infra/lifecycle/image/test_promote.py",
    "make image PUSH=1 ENV=dev": "tests/infra/lifecycle/image/test_command.py",
    "make train ENV=prod TEAM=research GPU=1 WORKERS=16 GPU_MODEL=h100 SPOT=1": "tests/platform_charts/test_cluster_capacity.py",
    "make train ENV=prod TEAM=research GPU=1 WORKERS=16 GROUP=h100": "tests/platform_charts/test_cluster_capacity.py",
    "make train ENV=prod TEAM=research GPU=1 WORKERS=16 GROUP=reserved,h100,h100-spot": "tests/platform_charts/test_cluster_capacity.py",
    "make capacity ENV=prod GROUP=h100 FOR=8 HOURS=24": "tests/infra/lifecycle/capacity/test_command.py",
    "make jobs": "tests/training/cluster/test_cluster_commands.py",
    "kubectl get rayjobs": "tests/platform_charts/test_cluster_job_columns.py",
    "make tunnel ENV=prod": "tests/infra/lifecycle/access/test_tunnel.py",
    "make conformance ENV=dev TEAM=research": "tests/training/cluster/conformance/test_cluster_conformance.py",
    "make postmortem": "tests/training/test_postmortem.py",
    "make postmortem ENV=dev JOB=first": "tests/platform_charts/test_cluster_job_recorder.py",
    "make logs ENV=dev JOB=first": "tests/training/cluster/test_gone_logs.py",
    "make sandbox ENV=dev": "tests/infra/lifecycle/sandbox/test_sandbox.py",
    "make release-lock UPGRADE=1": "tests/infra/lifecycle/release/test_survey.py",
    "make charts ENV=dev": "tests/infra/lifecycle/test_cli.py",
    "make graph ENV=prod FILE=architecture.svg": "tests/infra/lifecycle/test_cli.py",
    "make down ENV=test-4711": "tests/infra/lifecycle/teardown/test_down.py",
    "make upgrade": "tests/infra/lifecycle/upgrade/test_run.py",
    "make drift ENV=…": "tests/infra/lifecycle/drift/test_account_drift.py",
    "make cluster-test OWNER=you@example.com ACCOUNT=111122223333 TTL=4h": "tests/infra/lifecycle/disposable/test_cluster_test.py",
    "make reap": "tests/infra/lifecycle/leftovers/test_reap_command.py",
    "python -m infra.lifecycle leaks --env dev --policy": "tests/infra/lifecycle/leftovers/test_leaks_command.py",
    "make leaks ENV=dev": "tests/infra/lifecycle/leftovers/test_leaks_command.py",
    "pulumi cancel -s dev": "tests/infra/engine/test_interruption.py",
    "pulumi refresh -s dev --clear-pending-creates": "tests/infra/engine/test_interruption.py",
    "pulumi import": "tests/infra/engine/test_interruption.py",
    "make engines": "tests/infra/lifecycle/sandbox/test_build.py",
    "make prices": "tests/infra/lifecycle/test_prices.py",
    "make cluster": "tests/training/cluster/test_cluster_sessions.py",
    "make resume": "tests/training/cluster/test_cluster_commands.py",
}
"""File with the tests of a command that take it in parts, by command."""


def commands() -> frozenset[str]:
    """The commands of the guide, in code blocks and in its text; an ellipsis stands for a value."""
    return frozenset(commands_in(GUIDE.read_text(encoding="utf-8")))


def account_only() -> frozenset[str]:
    """The commands that the guide lists as run by no test."""
    _, found, section = GUIDE.read_text(encoding="utf-8").partition(f"{ACCOUNT_ONLY}\n")
    assert found, f"{GUIDE} has no section {ACCOUNT_ONLY}"
    return frozenset(_in_blocks(section.partition("\n## ")[0]))


def covers(tested: str, command: str) -> bool:
    """Whether a command that is tested is one of the guide, or the guide mentions it with fewer options."""
    words, mentioned = tested.split(), command.split()
    return words[:2] == mentioned[:2] and {word for word in mentioned if not word.endswith("…")} <= {*words}


def commands_in(text: str) -> Iterator[str]:
    """The commands of a document, in code blocks and in its text."""
    yield from _in_blocks(text)
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    for span in re.findall(r"`([^`]+)`", prose):
        command = " ".join(span.split())
        if _COMMAND.fullmatch(command):
            yield command


def _in_blocks(text: str) -> Iterator[str]:
    found, _ = read(text, GUIDE.name)
    yield from (command.text for command in found if _COMMAND.fullmatch(command.text))
