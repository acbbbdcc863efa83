"""Rules between `single_sign_on` and other settings."""

from __future__ import annotations

from collections.abc import Iterator

from infra.spec.section import Violation, nearest
from infra.spec.settings.single_sign_on import SingleSignOnSettings, mlflow_label
from infra.spec.settings.stack import StackSettings

_KEY = "single_sign_on"

_LONGEST_LABEL = 63
"""Characters of a label of a host name (RFC 1035, section 2.3.4)."""

_LONGEST_PREFIX = 8
"""Networks larger than this are the internet, as for `cluster.public_cidrs`."""


def single_sign_on_violations(settings: StackSettings) -> Iterator[Violation]:
    """The rules that the section breaks, if there is one."""
    found = settings.single_sign_on
    if found is not None:
        yield from _teams(found, settings)
        yield from _certificate(found, settings)
        yield from _clients(found, settings)
        if "openid" not in found.scopes:
            scopes = ", ".join(found.scopes) or "empty"
            yield Violation(f"{_KEY}.scopes", scopes, "must contain openid, which makes it OpenID Connect")


def _teams(found: SingleSignOnSettings, settings: StackSettings) -> Iterator[Violation]:
    known = [team.name for team in settings.teams]
    for team, groups in found.groups.items():
        key, shown = f"{_KEY}.groups.{team}", ", ".join(groups)
        if team not in known:
            yield Violation(key, shown, "no such team", nearest(team, known) if known else "add it to `teams`")
        elif len(mlflow_label(team)) > _LONGEST_LABEL:
            rule = f"the host name {mlflow_label(team)}.{found.domain} has a label of more than {_LONGEST_LABEL} characters"
            yield Violation(key, shown, rule, "give the team a shorter name")


def _certificate(found: SingleSignOnSettings, settings: StackSettings) -> Iterator[Violation]:
    _, _, _, region, account, _ = found.certificate_arn.split(":", 5)
    key, arn = f"{_KEY}.certificate_arn", found.certificate_arn
    if region != settings.aws.region:
        rule = f"a load balancer uses certificates of its own region, and aws.region is {settings.aws.region}"
        yield Violation(key, arn, rule, f"request the certificate in {settings.aws.region}")
    if account not in settings.aws.allowed_accounts:
        allowed = ", ".join(settings.aws.allowed_accounts)
        yield Violation(key, arn, f"must be in an account of aws.allowed_accounts, which is {allowed}")


def _clients(found: SingleSignOnSettings, settings: StackSettings) -> Iterator[Violation]:
    inside = (*settings.network.vpc_cidrs.values(), *settings.network.peered_cidrs)
    for index, cidr in enumerate(found.client_cidrs):
        key = f"{_KEY}.client_cidrs.{index}"
        if cidr.prefixlen < _LONGEST_PREFIX:
            yield Violation(key, cidr, "opens the UIs to the internet", "list the ranges of offices and VPNs")
        elif not found.internet_facing and not any(cidr.subnet_of(network) for network in inside):
            shown = ", ".join(map(str, inside))
            rule = f"cannot reach an internal load balancer: must lie in the VPC or network.peered_cidrs, {shown}"
            yield Violation(
                key, cidr, rule, "add the connected network to network.peered_cidrs, or set internet_facing"
            )
