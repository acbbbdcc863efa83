"""Alarms, topics, queues, event rules and budgets."""

from __future__ import annotations

from collections.abc import Iterator

from infra.lifecycle.leftovers.found import Call, Found, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, one_call, pages, tags_in, unknown
from infra.lifecycle.leftovers.refusals import unless_gone

TOPIC = "SNS topic"
BUDGET = "budget"


def _find_alarms(place: Place) -> Iterator[Found]:
    cloudwatch = place.client("cloudwatch")
    for kind in ("MetricAlarms", "CompositeAlarms"):
        for one in pages(cloudwatch, "describe_alarms", kind):
            with unless_gone():
                tags = cloudwatch.list_tags_for_resource(ResourceARN=one["AlarmArn"])["Tags"]
                yield Found(id=one["AlarmName"], tags=tags_in(tags))


def _remove_alarm(found: Found, _: Place) -> Iterator[Call]:
    yield Call("cloudwatch", "DeleteAlarms", {"AlarmNames": [found.id]})


def _find_topics(place: Place) -> Iterator[Found]:
    sns = place.client("sns")
    for arn in (one["TopicArn"] for one in pages(sns, "list_topics", "Topics")):
        with unless_gone():
            tags = tags_in(sns.list_tags_for_resource(ResourceArn=arn)["Tags"])
            yield Found(id=arn, name=arn.rpartition(":")[2], tags=tags)


def _find_queues(place: Place) -> Iterator[Found]:
    sqs = place.client("sqs")
    for url in pages(sqs, "list_queues", "QueueUrls"):
        with unless_gone():
            yield Found(id=url, name=url.rpartition("/")[2], tags=sqs.list_queue_tags(QueueUrl=url).get("Tags") or {})


def _find_rules(place: Place) -> Iterator[Found]:
    """Rules of the default bus that no service manages."""
    events = place.client("events")
    for one in pages(events, "list_rules", "Rules"):
        if not one.get("ManagedBy"):
            with unless_gone():
                tags = events.list_tags_for_resource(ResourceARN=one["Arn"])["Tags"]
                yield Found(id=one["Name"], tags=tags_in(tags))


def _remove_rule(found: Found, place: Place) -> Iterator[Call]:
    ids = [one["Id"] for one in pages(place.client("events"), "list_targets_by_rule", "Targets", Rule=found.id)]
    if ids:
        yield Call("events", "RemoveTargets", {"Rule": found.id, "Ids": ids})
    yield Call("events", "DeleteRule", {"Name": found.id})


def _find_budgets(place: Place) -> Iterator[Found]:
    for one in pages(place.client("budgets"), "describe_budgets", "Budgets", AccountId=place.account):
        yield Found(id=one["BudgetName"], facts={"account": place.account})


def _remove_budget(found: Found, _: Place) -> Iterator[Call]:
    yield Call("budgets", "DeleteBudget", {"AccountId": found.facts["account"], "BudgetName": found.id})


KINDS = (
    Kind(
        name="CloudWatch alarm",
        phase=Phase.MESSAGES,
        find=_find_alarms,
        remove=_remove_alarm,
        reads=actions("cloudwatch", "DescribeAlarms ListTagsForResource"),
        writes=actions("cloudwatch", "DeleteAlarms"),
        price=unknown,
    ),
    Kind(
        name=TOPIC,
        phase=Phase.MESSAGES,
        find=_find_topics,
        remove=one_call("sns", "DeleteTopic", "TopicArn"),
        reads=actions("sns", "ListTopics ListTagsForResource"),
        writes=actions("sns", "DeleteTopic"),
    ),
    Kind(
        name="SQS queue",
        phase=Phase.MESSAGES,
        find=_find_queues,
        remove=one_call("sqs", "DeleteQueue", "QueueUrl"),
        reads=actions("sqs", "ListQueues ListQueueTags"),
        writes=actions("sqs", "DeleteQueue"),
    ),
    Kind(
        name="event rule",
        phase=Phase.MESSAGES,
        find=_find_rules,
        remove=_remove_rule,
        reads=actions("events", "ListRules ListTagsForResource ListTargetsByRule"),
        writes=actions("events", "RemoveTargets DeleteRule"),
    ),
    Kind(
        name=BUDGET,
        phase=Phase.BUDGET,
        find=_find_budgets,
        remove=_remove_budget,
        reads=actions("budgets", "ViewBudget"),
        writes=actions("budgets", "ModifyBudget"),
        is_global=True,
    ),
)
"""Kinds of this module."""
