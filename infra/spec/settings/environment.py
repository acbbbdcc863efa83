"""An environment's identity, place, owner and budget."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field, PositiveFloat

from infra.spec.protection import EnvironmentKind
from infra.spec.section import Section

Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
AccountId = Annotated[str, Field(pattern=r"^\d{12}$")]
RoleArn = Annotated[str, Field(pattern=r"^arn:aws:iam::\d{12}:role/[\w+=,.@/-]+$")]
KubernetesName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]


class EnvironmentSettings(Section):
    """What the environment is for."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{1,18}[a-z0-9]$",
        description="Name of the environment, 3 to 20 characters; part of the cluster's and the buckets' names.",
    )
    kind: EnvironmentKind = Field(description="dev | staging | prod | test; decides what protects it.")
    owner: Email = Field(description="Mail address of the owner; a tag of every resource.")
    expires: AwareDatetime | None = Field(
        None, description="When a test cluster is reaped, with time zone; null never expires, which kind test forbids."
    )


class AwsSettings(Section):
    """Where it runs."""

    region: str = Field(description="Region of everything.")
    allowed_accounts: tuple[AccountId, ...] = Field(
        min_length=1, description="AWS accounts this environment may be created in; any other is refused."
    )


class BudgetSettings(Section):
    """What it may cost, and who hears of it."""

    monthly_usd: PositiveFloat = Field(description="US dollars a month; an AWS budget alarm watches the tagged cost.")
    alert_percent: tuple[Annotated[int, Field(ge=1, le=200)], ...] = Field(
        (50, 80, 100), min_length=1, description="Percentages of the budget at which a mail goes out."
    )
    email: Email = Field(description="Who gets the mail.")
