"""An environment's identity, account, region and budget."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field, PositiveFloat

from infra.spec.matching import Matching
from infra.spec.protection import EnvironmentKind
from infra.spec.section import Section

Email = Annotated[str, Matching(r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "must be an email address")]
AccountId = Annotated[str, Matching(r"^\d{12}$", "must be an AWS account, 12 digits")]
RoleArn = Annotated[
    str,
    Matching(
        r"^arn:aws:iam::\d{12}:role/[\w+=,.@/-]+$",
        "must be the ARN of an IAM role in the partition aws, arn:aws:iam::ACCOUNT:role/NAME; the partitions aws-us-gov (GovCloud) and "
        "aws-cn (China) are not supported",
    ),
]
KubernetesName = Annotated[
    str,
    Matching(
        r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$",
        "must be at most 63 lower-case letters, digits and inner hyphens, and begin with a letter",
    ),
]

_NAME = "must be 3 to 20 lower-case letters, digits and single hyphens between them, and begin with a letter, as for RDS and ECR"


class EnvironmentSettings(Section):
    """Identity of the environment."""

    name: Annotated[str, Matching(r"^.{3,20}$", _NAME), Matching(r"^[a-z](-?[a-z0-9])+$", _NAME)] = Field(
        description="Name of the environment, 3 to 20 characters; part of cluster and bucket names.",
    )
    kind: EnvironmentKind = Field(description="dev | staging | prod | test; decides the protection of its data.")
    owner: Email = Field(description="Email address of the owner; a tag on every resource.")
    expires: AwareDatetime | None = Field(
        None, description="Time when a test cluster is reaped, with time zone; required for kind test, null otherwise."
    )
    purpose: Annotated[str, Matching(r"^[\w.:/=+@-]{1,64}$", "must be 1 to 64 letters, digits and _.:/=+@-")] | None = (
        Field(None, description="What the environment is for; a tag on every resource. Null sets no tag.")
    )


class AwsSettings(Section):
    """AWS region and accounts."""

    region: str = Field(description="Region of all resources.")
    allowed_accounts: tuple[AccountId, ...] = Field(
        min_length=1, description="AWS accounts this environment may be created in; any other is refused."
    )


class BudgetSettings(Section):
    """AWS budget of the environment."""

    monthly_usd: PositiveFloat = Field(description="US dollars per month, compared with the cost of tagged resources.")
    alert_percent: tuple[Annotated[int, Field(ge=1, le=200)], ...] = Field(
        (50, 80, 100), min_length=1, description="Percentages of the budget at which AWS sends an email."
    )
    email: Email = Field(description="Recipient of the emails.")
