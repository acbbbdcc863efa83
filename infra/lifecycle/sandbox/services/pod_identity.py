"""A stand-in for EKS Pod Identity: pods of service accounts that have an IAM role get credentials and the AWS API's address."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from infra.lifecycle.sandbox.node.objects import ADMISSION_API
from infra.lifecycle.sandbox.services.aws import CREDENTIALS
from infra.lifecycle.sandbox.services.facts import Services
from infra.spec.manifest import Manifest
from infra.spec.names import PLATFORM_ACCOUNTS, trainer_account
from infra.spec.settings.stack import StackSettings

_NAME = "sandbox-pod-identity"


def pod_identity(settings: StackSettings, services: Services) -> Iterator[Manifest]:
    """The admission policy; none without an AWS API.

    As on EKS, the objects that are shipped say nothing of credentials: they are added to every container when a pod is made.

    Args:
        settings: the environment.
        services: the sandbox's services.
    """
    if not services.has_aws:
        return
    platform = [account for accounts in PLATFORM_ACCOUNTS.values() for account in accounts]
    accounts = [*platform, *(trainer_account(team.name) for team in settings.teams)]
    known = json.dumps([f"{account.namespace}/{account.name}" for account in accounts])
    variables = {
        "AWS_ENDPOINT_URL": services.aws_endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": settings.aws.region,
        "AWS_DEFAULT_REGION": settings.aws.region,
        **CREDENTIALS,
    }
    yield {
        "apiVersion": ADMISSION_API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _NAME},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "matchConditions": [
                {
                    "name": "has-a-role",
                    "expression": f'(request.namespace + "/" + object.spec.?serviceAccountName.orValue("")) in {known}',
                }
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",  # another policy may add a container
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": _addition(variables)}}
            ],
        },
    }
    yield {
        "apiVersion": ADMISSION_API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _NAME},
        "spec": {"policyName": _NAME},
    }


def _addition(variables: Mapping[str, str]) -> str:
    """The CEL expression of what is merged into a pod, by the names of containers and variables."""
    return f"Object{{spec: Object.spec{{{_env('containers', variables)}, {_env('initContainers', variables)}}}}}"


def _env(field: str, variables: Mapping[str, str]) -> str:
    kind = f"Object.spec.{field}"
    entries = ", ".join(
        f"{kind}.env{{name: {json.dumps(name)}, value: {json.dumps(value)}}}" for name, value in variables.items()
    )
    found = f"object.spec.?{field}.orValue([])"
    return f"{field}: {found}.map(one, {kind}{{name: one.name, env: [{entries}]}})"
