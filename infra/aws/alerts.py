"""The SNS topic that emails alerts."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.spec import names


class AlertTopic(pulumi.ComponentResource):
    """An SNS topic with one email subscription, which the recipient must confirm after the first `up`.

    The topic uses the AWS managed key `alias/aws/sns`: alerts hold only names and figures, and a customer managed key
    would need a grant for Alertmanager.

    Attributes:
        arn: ARN of the topic.
    """

    arn: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions, *, topic: str, email: str) -> None:
        super().__init__("rtp:aws:AlertTopic", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        sns_topic = aws.sns.Topic(name, name=topic, kms_master_key_id="alias/aws/sns", opts=child_opts)
        aws.sns.TopicSubscription(
            f"{name}-mail", topic=sns_topic.arn, protocol="email", endpoint=email, opts=child_opts
        )
        self.arn = sns_topic.arn
        self.register_outputs({"arn": self.arn})


def make_alert_topic(context: BuildContext) -> AlertTopic | None:
    """Make the alert topic; None if `monitoring.alert_email` is not set."""
    email = context.settings.monitoring.alert_email
    if email is None:
        return None
    return AlertTopic("alerts", context.opts, topic=names.alert_topic_name(context.settings), email=email)
