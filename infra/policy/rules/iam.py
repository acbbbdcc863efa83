"""Least privilege: every statement of every policy is read."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.documents import (
    IDENTITY_DOCUMENT_TYPES,
    RESOURCE_DOCUMENT_TYPES,
    identity_statements,
    resource_statements,
)
from infra.policy.graph import Subject
from infra.policy.rule import resource_rule

WITHOUT_RESOURCE = frozenset(
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
"""Actions of the autoscaler that IAM evaluates against `*` only: in the Service Authorization Reference their row names
no resource type. It is the one list of what may stand beside `*`, and holds nothing that no role needs."""

_TOO_BROAD = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "FullAccess")


@resource_rule(*IDENTITY_DOCUMENT_TYPES, remedy="list the actions that the workload calls")
def permissions_name_their_actions(subject: Subject) -> Iterator[str]:
    """No statement allows actions by a pattern, or by what they are not."""
    for statement in identity_statements(subject):
        for action in statement.actions if statement.allows else ():
            if "*" in action or action.startswith("NotAction:"):
                yield f"statement {statement.sid or '(without Sid)'} allows {action}"


@resource_rule(*IDENTITY_DOCUMENT_TYPES, remedy="name the resources, or the condition that narrows them")
def permissions_name_their_resources(subject: Subject) -> Iterator[str]:
    """No statement allows its actions on every resource, unless a condition narrows it or the action knows no resource."""
    for statement in identity_statements(subject):
        is_everything = "*" in statement.resources or any(one.startswith("NotResource:") for one in statement.resources)
        unbound = sorted(action for action in statement.actions if action not in WITHOUT_RESOURCE)
        if statement.allows and is_everything and not statement.condition and unbound:
            yield f"statement {statement.sid or '(without Sid)'} allows {', '.join(unbound)} on every resource"


@resource_rule(*IDENTITY_DOCUMENT_TYPES, remedy="add a condition on iam:PassedToService")
def passing_a_role_names_the_service(subject: Subject) -> Iterator[str]:
    """Who may pass a role may pass it to a named service only, or gains whatever the role may do."""
    for statement in identity_statements(subject):
        passes = statement.allows and "iam:PassRole" in statement.actions
        if passes and "iam:passedtoservice" not in statement.condition_keys:
            yield f"statement {statement.sid or '(without Sid)'} allows iam:PassRole to any service"


@resource_rule(*RESOURCE_DOCUMENT_TYPES, remedy="name the accounts, roles or services, or add a condition on them")
def nobody_in_particular_is_trusted_with_nothing(subject: Subject) -> Iterator[str]:
    """No resource policy and no trust policy allows everybody, unless a condition says who is meant."""
    for statement in resource_statements(subject):
        if statement.allows and "*" in statement.principals and not statement.condition:
            yield f"statement {statement.sid or '(without Sid)'} allows everybody"


@resource_rule(tokens.ROLE_ATTACHMENT, remedy="write a policy with the actions needed")
def no_role_is_an_administrator(attachment: Subject) -> Iterator[str]:
    """No role carries one of AWS's broad policies, which allow whole services and grow with them."""
    name = str(attachment.get("policyArn")).rpartition("/")[2]
    if name.endswith(_TOO_BROAD):
        yield f"attaches {name}"


@resource_rule(tokens.ACCESS_KEY, tokens.IAM_USER, remedy="use a role: Pod Identity for pods, SSO for people")
def there_are_no_long_lived_credentials(subject: Subject) -> Iterator[str]:
    """The stack makes no IAM users and no access keys: neither expires, and a leaked one works anywhere."""
    yield f"is a {subject.type.rpartition(':')[2]}"


@resource_rule(tokens.ROLE, remedy="trust a service by name, e.g. pods.eks.amazonaws.com, not a whole account")
def roles_trust_services(role: Subject) -> Iterator[str]:
    """A role of the stack is assumed by a service; an account as principal hands it to everybody who may sts:AssumeRole there."""
    for statement in resource_statements(role):
        for principal in statement.principals if statement.allows else ():
            if not principal.startswith("Service:"):
                yield f"trusts {principal}"
