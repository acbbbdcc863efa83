"""The recorded graph, planned by the real AWS provider against moto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.terraform import Workspace, find_tools, moto_server
from tests.infra.aws.graphs import ENVIRONMENTS, EXISTING, graph, settings_of, tags_of, unusual
from tests.infra.provider.translate import Configuration, translate

pytestmark = pytest.mark.extended

REGION = "us-east-1"
ACCOUNT = "111122223333"


NOT_IN_PROVIDER = {
    ("aws:eks/cluster:Cluster", "deletionProtection"),  # added in provider 6.11; the mirror has 5.100
    ("aws:eks/nodeGroup:NodeGroup", "updateConfig.updateStrategy"),  # the SDK in the lock has it
}
"""Properties that the mirrored provider lacks, by type token and path."""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A working directory with the provider, whose AWS is moto."""
    tools = find_tools()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        with moto_server() as url:
            yield Workspace(tools, tmp_path, endpoint=url, region=REGION)


def test_the_provider_has_every_type_and_property_and_plans_every_resource_of_every_environment(
    workspace: Workspace,
) -> None:
    """Also of an environment without default values, and of those in an existing VPC and on an existing cluster."""
    # Over 20 CPU seconds: Terraform starts the AWS provider for every environment.
    translations = [translate(unusual(), workspace.schemas, prefix="unusual", account=ACCOUNT, region=REGION)]
    for name in (*ENVIRONMENTS, *EXISTING):
        account = settings_of(name).aws.allowed_accounts[0]
        translations.append(translate(graph(name), workspace.schemas, prefix=name, account=account, region=REGION))
    assert {one for part in translations for one in part.unknown} == NOT_IN_PROVIDER
    whole: Configuration = {}
    for part in translations:
        for type_, members in part.resources.items():
            whole.setdefault(type_, {}).update(members)
    workspace.write(whole, tags=tags_of(graph("prod")))
    assert workspace.plan() == dict.fromkeys((address for part in translations for address in part.urns), "create")
