"""The one AWS provider of the stack: where it works, in which accounts it may, and what it writes on everything."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.spec.names import default_tags
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings


def make_provider(settings: StackSettings, release: ReleaseManifest) -> aws.Provider:
    """A provider that fails in any account but the allowed ones before it makes anything."""
    return aws.Provider(
        "aws",
        region=settings.aws.region,
        allowed_account_ids=list(settings.aws.allowed_accounts),
        default_tags=aws.ProviderDefaultTagsArgs(tags=default_tags(settings, release)),
    )


def account_of(provider: aws.Provider) -> pulumi.Output[str]:
    """The account the provider works in; known in a preview too, a provider function runs there."""
    identity = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(provider=provider))
    return identity.account_id
