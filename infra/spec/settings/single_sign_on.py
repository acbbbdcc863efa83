"""Single sign-on: web UIs behind a load balancer that signs people in with OpenID Connect."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated

from pydantic import Field

from infra.spec.matching import Matching
from infra.spec.section import Section
from infra.spec.settings.environment import KubernetesName

DomainName = Annotated[
    str,
    Matching(
        r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$",
        "must be a domain name in lower case, e.g. ml.example.com",
    ),
]
CertificateArn = Annotated[
    str,
    Matching(
        r"^arn:aws:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f-]{36}$",
        "must be the ARN of an ACM certificate, arn:aws:acm:REGION:ACCOUNT:certificate/ID",
    ),
]
HttpsUrl = Annotated[
    str,
    Matching(
        r"^https://[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:\d{1,5})?(/[^\s#]*)?$",
        "must be a URL that begins with https://, as the identity provider publishes it",
    ),
]
Word = Annotated[str, Matching(r"^[!-~]+$", "must be printable ASCII without spaces")]
Group = Annotated[str, Field(min_length=1)]


class SingleSignOnSettings(Section):
    """A load balancer in front of MLflow and Grafana, with an OpenID Connect provider."""

    domain: DomainName = Field(
        description="Domain of the UIs: grafana.DOMAIN, and mlflow-TEAM.DOMAIN for each team in `groups`."
    )
    certificate_arn: CertificateArn = Field(
        description="ACM certificate for *.DOMAIN, in the region and account of the environment."
    )
    internet_facing: bool = Field(
        False, description="Load balancer in the public subnets; otherwise only the VPC and peered networks reach it."
    )
    client_cidrs: tuple[IPv4Network, ...] = Field(
        min_length=1, description="Ranges that may reach the load balancer; people sign in all the same."
    )
    issuer: HttpsUrl = Field(description="Issuer of the identity provider, exactly as in its tokens.")
    authorization_endpoint: HttpsUrl = Field(description="authorization_endpoint of the identity provider.")
    token_endpoint: HttpsUrl = Field(description="token_endpoint of the identity provider.")
    user_info_endpoint: HttpsUrl = Field(
        description="userinfo_endpoint of the identity provider, which returns the claim with the groups."
    )
    client_id: Word = Field(
        description="Client ID at the identity provider; its secret is in the Secret sso/oidc-client."
    )
    scopes: tuple[Word, ...] = Field(("openid", "email", "profile"), description="Scopes to ask for, with openid.")
    groups_claim: Word = Field("groups", description="Claim with the groups of a person: a list, or a single one.")
    groups: dict[KubernetesName, Annotated[tuple[Group, ...], Field(min_length=1)]] = Field(
        min_length=1, description="Groups of the identity provider whose members belong to a team, by team."
    )
    session_hours: Annotated[int, Field(ge=1, le=168)] = Field(
        8, description="Hours after which people sign in again; until then a person who left a group stays in it."
    )


GRAFANA_LABEL = "grafana"
"""First label of Grafana's host name."""


def mlflow_label(team: str) -> str:
    """First label of the host name of a team's MLflow.

    Each team has a host name of its own, so that the browser keeps apart what the teams' artifacts may contain.
    """
    return f"mlflow-{team}"
