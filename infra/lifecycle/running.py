"""What of an environment runs already: its cluster, by the outputs of its stack."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from infra.spec import kubeconfig
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.outputs import ClusterOutput
from infra.spec.section import validate
from infra.spec.settings import StackSettings
from infra.spec.stack_outputs import NoStackError, outputs_of_stack

_TIMEOUTS_S = (5, 60)
"""For the connection, and for the answer: definitions are megabytes."""

_REMEDY = (
    "reach the cluster from here (network, `aws sso login`); one that is beyond reach is mended by `pulumi up --target`"
)


class RunningCluster(Protocol):
    """The cluster of an environment, if it has one."""

    def definitions(self) -> tuple[Manifest, ...] | None:
        """Its custom resource definitions with their status; None where there is no cluster yet.

        Raises:
            PlatformError: the stack cannot be asked, or the cluster cannot be reached.
        """
        ...


class StackCluster:
    """The cluster in the outputs of an environment's stack; asked once.

    Args:
        settings: the environment.
    """

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings

    def definitions(self) -> tuple[Manifest, ...] | None:
        """See `RunningCluster`; None also where the first `up` was broken off before it had outputs."""
        return self._asked

    @cached_property
    def _asked(self) -> tuple[Manifest, ...] | None:
        try:
            outputs = outputs_of_stack(self._settings.environment.name)
        except NoStackError:
            return None
        return self._read(outputs["cluster"]) if "cluster" in outputs else None

    def _read(self, output: Mapping[str, Any]) -> tuple[Manifest, ...]:
        # This output and not all of them: the stack may be of an older release, whose contract was another.
        cluster = validate(ClusterOutput, output, file=f"output cluster of {self._settings.environment.name}")
        if shutil.which(kubeconfig.PROGRAM) is None:
            raise RefusedError(
                f"no `{kubeconfig.PROGRAM}` on PATH, which gives the token for cluster {cluster.name}",
                remedy="install the AWS CLI, version 2; `up` needs it too",
            )
        way = kubeconfig.kubeconfig(
            name=cluster.name,
            endpoint=cluster.endpoint,
            authority=cluster.certificate_authority,
            region=self._settings.aws.region,
        )
        settings = client.Configuration()
        settings.retries = False
        config.load_kube_config_from_dict(way, client_configuration=settings)
        with client.ApiClient(settings) as connection:
            api = client.ApiextensionsV1Api(connection)
            try:
                answer = api.list_custom_resource_definition(_preload_content=False, _request_timeout=_TIMEOUTS_S)
            except (ApiException, HTTPError) as error:
                reason = getattr(error, "reason", None) or error
                raise RefusedError(
                    f"cluster {cluster.name} at {cluster.endpoint} does not show its definitions: {reason}",
                    remedy=_REMEDY,
                ) from error
        found: list[Manifest] = json.loads(answer.data)["items"]
        return tuple(found)
