"""The stack's AWS provider: region, allowed accounts and default tags."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.spec.names import default_tags
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings


def make_provider(settings: StackSettings, release: ReleaseManifest) -> aws.Provider:
    """Make the provider, which fails in any other account before it creates anything."""
    return aws.Provider(
        "aws",
        region=settings.aws.region,
        allowed_account_ids=list(settings.aws.allowed_accounts),
        default_tags=aws.ProviderDefaultTagsArgs(tags=default_tags(settings, release)),
    )


def account_of(provider: aws.Provider) -> pulumi.Output[str]:
    """The provider's account; known in a preview too, because provider functions run there."""
    identity = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(provider=provider))
    return identity.account_id
