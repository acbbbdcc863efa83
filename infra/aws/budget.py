"""The AWS budget of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.spec import names


@dataclass(frozen=True, kw_only=True)
class BudgetArgs:
    """Inputs of `Budget`.

    Attributes:
        name: physical name of the budget.
        monthly_usd: limit in US dollars a month.
        alert_percent: percentages of the limit that trigger an email once spent.
        email: recipient of the emails.
        tag: key and value of the tag whose cost counts.
    """

    name: str
    monthly_usd: float
    alert_percent: Sequence[int]
    email: str
    tag: tuple[str, str]


class Budget(pulumi.ComponentResource):
    """A monthly cost budget with an email at each percentage spent, and one when the forecast exceeds the limit.

    The payer account must activate the tag as a cost allocation tag; until then the budget counts no cost (AWS Billing
    user guide, "Activating user-defined cost allocation tags").
    """

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Budget", name, None, opts)
        spent = [_notification("ACTUAL", percent, args.email) for percent in args.alert_percent]
        aws.budgets.Budget(
            name,
            name=args.name,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{args.monthly_usd:.2f}",
            limit_unit="USD",
            cost_filters=[
                aws.budgets.BudgetCostFilterArgs(name="TagKeyValue", values=["user:{}${}".format(*args.tag)])
            ],
            notifications=[*spent, _notification("FORECASTED", 100, args.email)],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _notification(kind: str, percent: int, email: str) -> aws.budgets.BudgetNotificationArgs:
    return aws.budgets.BudgetNotificationArgs(
        notification_type=kind,
        comparison_operator="GREATER_THAN",
        threshold=percent,
        threshold_type="PERCENTAGE",
        subscriber_email_addresses=[email],
    )


def make_budget(context: BuildContext) -> None:
    """Make the budget, if the settings have one."""
    budget = context.settings.budget
    if budget is None:
        return
    args = BudgetArgs(
        name=context.name_prefix,
        monthly_usd=budget.monthly_usd,
        alert_percent=budget.alert_percent,
        email=budget.email,
        tag=(names.STACK_TAG, names.stack_tag(context.settings)),
    )
    Budget("budget", args, context.opts)
