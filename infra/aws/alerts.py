"""The way of alerts to people: a topic that mails them."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.spec import names


class AlertTopic(pulumi.ComponentResource):
    """An SNS topic with one subscriber, who has to confirm the mail that AWS sends at the first `up`.

    It is encrypted with the key that AWS keeps for SNS, which serves whoever may publish: alerts hold names and figures
    only, and a key of the stack's own would have to be opened to Alertmanager for no gain.

    Attributes:
        arn: ARN of the topic.
    """

    arn: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions, *, topic: str, email: str) -> None:
        super().__init__("rtp:aws:AlertTopic", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        made = aws.sns.Topic(name, name=topic, kms_master_key_id="alias/aws/sns", opts=below)
        aws.sns.TopicSubscription(f"{name}-mail", topic=made.arn, protocol="email", endpoint=email, opts=below)
        self.arn = made.arn
        self.register_outputs({"arn": self.arn})


def make_alerts(context: BuildContext) -> AlertTopic | None:
    """The topic that mails alerts, where somebody gets them by mail."""
    email = context.settings.monitoring.alert_email
    if email is None:
        return None
    return AlertTopic("alerts", context.top, topic=names.alert_topic_name(context.settings), email=email)
