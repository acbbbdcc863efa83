"""Least privilege in identity-based policies, resource-based policies and trust policies."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.documents import (
    IDENTITY_DOCUMENT_TYPES,
    RESOURCE_DOCUMENT_TYPES,
    identity_statements,
    resource_statements,
)
from infra.policy.graph import Resource
from infra.policy.rule import resource_rule

ACTIONS_WITHOUT_RESOURCE_TYPE = frozenset(
    {
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeLaunchConfigurations",
        "autoscaling:DescribeScalingActivities",
        "autoscaling:DescribeTags",
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeImages",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:GetInstanceTypesFromInstanceRequirements",
    }
)
"""Actions that the autoscaler and the EFS driver need with the resource `*`, because they support no resource types
(Service Authorization Reference)."""

_BROAD_POLICIES = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "FullAccess")


@resource_rule(*IDENTITY_DOCUMENT_TYPES, remedy="list the actions that the workload needs")
def no_wildcard_actions(resource: Resource) -> Iterator[str]:
    """No statement allows actions by wildcard or NotAction."""
    for statement in identity_statements(resource):
        for action in statement.actions if statement.allows else ():
            if "*" in action or action.startswith("NotAction:"):
                yield f"statement {statement.sid or '(without Sid)'} allows {action}"


@resource_rule(*IDENTITY_DOCUMENT_TYPES, remedy="list the resources, or add a condition")
def no_wildcard_resources(resource: Resource) -> Iterator[str]:
    """No statement allows actions on every resource without a condition, except actions without resource types."""
    for statement in identity_statements(resource):
        is_everything = "*" in statement.resources or any(one.startswith("NotResource:") for one in statement.resources)
        unbound = sorted(action for action in statement.actions if action not in ACTIONS_WITHOUT_RESOURCE_TYPE)
        if statement.allows and is_everything and not statement.condition and unbound:
            yield f"statement {statement.sid or '(without Sid)'} allows {', '.join(unbound)} on every resource"


@resource_rule(*IDENTITY_DOCUMENT_TYPES, remedy="add a condition on iam:PassedToService")
def pass_role_names_the_service(resource: Resource) -> Iterator[str]:
    """iam:PassRole is limited to named services, because passing a role grants its permissions."""
    for statement in identity_statements(resource):
        passes = statement.allows and "iam:PassRole" in statement.actions
        if passes and "iam:passedtoservice" not in statement.condition_keys:
            yield f"statement {statement.sid or '(without Sid)'} allows iam:PassRole to any service"


@resource_rule(*RESOURCE_DOCUMENT_TYPES, remedy="name the accounts, roles or services, or add a condition")
def no_anonymous_principals(resource: Resource) -> Iterator[str]:
    """No resource-based policy and no trust policy allows every principal without a condition."""
    for statement in resource_statements(resource):
        if statement.allows and "*" in statement.principals and not statement.condition:
            yield f"statement {statement.sid or '(without Sid)'} allows every principal"


@resource_rule(tokens.ROLE_ATTACHMENT, remedy="write an inline policy with the actions that the role needs")
def no_broad_managed_policies(attachment: Resource) -> Iterator[str]:
    """No role has an AWS managed policy for administrators or with full access to a service."""
    name = str(attachment.get("policyArn")).rpartition("/")[2]
    if name.endswith(_BROAD_POLICIES):
        yield f"attaches {name}"


@resource_rule(tokens.ACCESS_KEY, tokens.IAM_USER, remedy="use a role: Pod Identity for pods, SSO for people")
def no_long_lived_credentials(resource: Resource) -> Iterator[str]:
    """The stack has no IAM users and access keys, which do not expire."""
    yield f"is a {resource.type.rpartition(':')[2]}"


@resource_rule(tokens.ROLE, remedy="trust a service, e.g. pods.eks.amazonaws.com, instead of an account")
def roles_trust_only_services(role: Resource) -> Iterator[str]:
    """Only services assume the stack's roles; an account as principal delegates access to the account's IAM policies."""
    for statement in resource_statements(role):
        for principal in statement.principals if statement.allows else ():
            if not principal.startswith("Service:"):
                yield f"trusts {principal}"
