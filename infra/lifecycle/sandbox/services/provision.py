"""What a stack has in S3 and Secrets Manager, made in a sandbox's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import boto3
from botocore.exceptions import ClientError

from infra.lifecycle.sandbox.recorded import Recorded
from infra.lifecycle.sandbox.services.aws import CREDENTIALS
from infra.lifecycle.sandbox.services.facts import DATABASE_PORT, DATABASE_USER, Services

_SECRET = "mlflow-database"  # noqa: S105 - a name


def provision(stack: Recorded, services: Services) -> Recorded:
    """Make the stack's buckets and the database's secret, where they are missing.

    Args:
        stack: the recorded stack.
        services: the sandbox's services.

    Returns:
        the stack with the database and the secret as they are.
    """
    if not services.has_aws:
        return stack
    storage = stack.outputs.storage
    s3 = _client("s3", services, stack.outputs.region)
    for bucket in (storage.artifact_bucket, storage.checkpoint_bucket):
        _unless("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket=bucket, **_location(stack.outputs.region))
    if services.database_password is None:
        return stack
    secrets = _client("secretsmanager", services, stack.outputs.region)
    credentials = {"username": DATABASE_USER, "password": services.database_password}
    _unless("ResourceExistsException", secrets.create_secret, Name=_SECRET, SecretString=json.dumps(credentials))
    return stack._replace(
        facts=replace(
            stack.facts,
            database_host=services.address,
            database_port=DATABASE_PORT,
            database_secret_arn=secrets.describe_secret(SecretId=_SECRET)["ARN"],
        )
    )


def _location(region: str) -> dict[str, Any]:
    """S3 rejects the constraint in its first region only."""
    return {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}


def _unless(code: str, call: Any, **arguments: Any) -> None:  # noqa: ANN401 - boto3 has no types
    try:
        call(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] != code:
            raise


def _client(name: str, services: Services, region: str) -> Any:  # noqa: ANN401 - boto3 has no types
    return boto3.client(
        name,
        endpoint_url=services.aws_endpoint,
        region_name=region,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
