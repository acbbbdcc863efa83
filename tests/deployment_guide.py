"""The commands of docs/DEPLOYMENT.md that tests run."""

from __future__ import annotations

from typing import NamedTuple


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
UNPROTECT = (Step("pulumi state unprotect --all -s staging --yes"),)
BARE = (
    Step("pulumi up -s prod", "--yes", says="this update registers the AWS resources only"),
    Step("make image PUSH=1 ENV=prod", says="written to release.yaml; commit it"),
    Step("pulumi up -s prod", "--yes"),
)
IN_THE_ENGINE = (*PREPARE, *BRING_UP, *UPDATE, *DESTROY, *UNPROTECT, *BARE)
"""Commands that `tests/infra/engine` runs."""
