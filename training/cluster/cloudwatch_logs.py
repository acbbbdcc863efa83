"""Shipped logs in a CloudWatch log group, read with the user's own credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.kube.aws_errors import aws_refusal
from infra.spec.errors import RefusedError
from training.cluster.shipped_query import LogQuery, ShippedRecord


@dataclass(frozen=True, kw_only=True)
class CloudWatchLogs:
    """A log group.

    Attributes:
        group: name of the log group.
        region: AWS region.
        page: events per request, at most 10,000.
    """

    group: str
    region: str
    page: int = 10_000

    @property
    def place(self) -> str:
        """The store in words, for messages."""
        return f"CloudWatch log group {self.group} in {self.region}"

    def search(self, query: LogQuery) -> Iterator[ShippedRecord]:
        """Records of the team's streams that the service finds to match; see `LogStore.search`.

        A page may be empty and yet have a next one (CloudWatch Logs API reference, FilterLogEvents). Streams begin with the
        namespace. A pod's name need not begin with the job's, because KubeRay shortens long names from the front.
        """
        try:
            import boto3  # noqa: PLC0415 - not in the trainer's environment
            from botocore.config import Config  # noqa: PLC0415
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
        except ImportError as error:
            raise RefusedError("boto3 is not installed in this environment", remedy="make env FOR=infra") from error
        request: dict[str, Any] = {
            "logGroupName": self.group,
            "logStreamNamePrefix": f"{query.namespace}.",
            "startTime": int(query.since.timestamp() * 1000),
            "filterPattern": filter_pattern(query),
            "limit": self.page,
        }
        quick = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 5, "mode": "standard"})
        try:
            logs = boto3.client("logs", region_name=self.region, config=quick)
            for page in logs.get_paginator("filter_log_events").paginate(**request):
                for event in page["events"]:
                    yield ShippedRecord(event["timestamp"] * 10**6, event["message"])
        except ClientError as error:
            raise self._refusal(error.response["Error"]["Code"], error) from error
        except BotoCoreError as error:
            raise aws_refusal(self.place, error, remedy="sign in, e.g. `aws sso login`") from error

    def _refusal(self, code: str, error: Exception) -> RefusedError:
        remedies = {
            "AccessDeniedException": f"ask for logs:FilterLogEvents on log group {self.group}",
            "ResourceNotFoundException": "the stack makes the group: bring it up, or check the AWS account and region",
        }
        return RefusedError(f"{self.place}: {error}", remedy=remedies.get(code, "retry; the service may be throttling"))


def filter_pattern(query: LogQuery) -> str:
    """A filter pattern for JSON events (CloudWatch Logs user guide, "Filter pattern syntax")."""
    terms = [f'($.{key} = "{value}")' for key, value in query.fields.items()]
    if query.rank is not None:
        terms.append(f"($.record.rank = {query.rank})")
    return f"{{ {' && '.join(terms)} }}"
