"""Prepare an account for the deployer: its IAM policy, and the bucket for Pulumi's state."""

from __future__ import annotations

import json

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.lifecycle.account.caller import caller_of
from infra.lifecycle.deployer.policy import deployer_policies
from infra.lifecycle.options import DeployerPolicyOptions, EnvironmentOptions
from infra.lifecycle.show import print_line
from infra.lifecycle.stack.state_bucket import StateBucket, ensure, state_bucket_name
from infra.preview.recording import record
from infra.spec.errors import PlatformError, SettingsError
from infra.spec.output import writing
from infra.spec.settings import StackSettings, check_account, load_environment


def deployer_policy(options: DeployerPolicyOptions) -> int:
    """Print the deployer's managed policies, or write one file per policy."""
    settings = _in_one_account(load_environment(options.env), options.account)
    policies = deployer_policies(settings, record(settings))
    if options.file is None:
        print_line(json.dumps({policy.name: policy.document for policy in policies}, indent=2))
        return 0
    for number, policy in enumerate(policies, start=1):
        file = options.file.with_stem(f"{options.file.stem}-{number}")
        with writing(file):
            file.write_text(json.dumps(policy.document, indent=2) + "\n", encoding="utf-8")
        print_line(f"aws iam create-policy --policy-name {policy.name} --policy-document file://{file}")
    print_line(
        f"{len(policies)} policies for account {settings.aws.allowed_accounts[0]}; attach all of them to the role"
    )
    return 0


def state_bucket(options: EnvironmentOptions) -> int:
    """Create or check the bucket for Pulumi's state, and print how to use it."""
    settings = load_environment(options.env)
    session = boto3.Session(region_name=settings.aws.region)
    account = caller_of(session).account
    check_account(settings, account)
    name = state_bucket_name(settings, account=account)
    bucket = StateBucket(name=name, region=settings.aws.region, account=account)
    try:
        is_new = ensure(bucket, session.client("s3"))
    except (BotoCoreError, ClientError) as error:
        raise PlatformError(f"bucket {name}: {error}", remedy="grant these credentials this permission") from error
    print_line(f"{name}: {'created' if is_new else 'exists'}; versioned, encrypted, private, TLS only")
    print_line(f"  pulumi login '{bucket.login}'")
    print_line(
        f"  pulumi stack init {options.env} --secrets-provider 'awskms://alias/pulumi?region={bucket.region}'"
        "   # a KMS key of yours: no passphrase to share"
    )
    return 0


def _in_one_account(settings: StackSettings, account: str | None) -> StackSettings:
    """The settings with one account only, which the graph's ARNs and the policies then name."""
    allowed = settings.aws.allowed_accounts
    if account is None and len(allowed) > 1:
        raise SettingsError(
            f"{settings.environment.name} may be in several accounts: {', '.join(allowed)}",
            remedy="name one with ACCOUNT=…, for each account that needs a deployer",
        )
    chosen = account or allowed[0]
    check_account(settings, chosen)
    return settings.model_copy(update={"aws": settings.aws.model_copy(update={"allowed_accounts": (chosen,)})})
