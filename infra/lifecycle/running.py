"""The running cluster of an environment, by the outputs of its stack."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from infra.kube.connection import connect_to
from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.outputs import ClusterOutput
from infra.spec.section import validate
from infra.spec.settings import StackSettings
from infra.spec.stack_outputs import NoStackError, outputs_of_stack

_REMEDY = "reach the cluster from here (network, `aws sso login`); one that is unreachable is repaired by `pulumi up --target`"


class RunningCluster(Protocol):
    """The cluster of an environment, if it has one."""

    def definitions(self) -> tuple[Manifest, ...] | None:
        """Its CRDs with their status; None if there is no cluster yet.

        Raises:
            PlatformError: the stack's outputs cannot be read, or the cluster cannot be reached.
        """
        ...


class StackCluster:
    """The cluster in the outputs of an environment's stack; read once.

    Args:
        settings: the environment.
    """

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings

    def definitions(self) -> tuple[Manifest, ...] | None:
        """See `RunningCluster`; None also if the first `up` was interrupted before it had outputs."""
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
        api = connect_to(cluster, region=self._settings.aws.region)
        try:
            return tuple(api.items("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
        except (ApiError, ConnectionLostError) as error:
            raise RefusedError(
                f"cluster {cluster.name} at {cluster.endpoint} does not show its CRDs: {error.args[0]}", remedy=_REMEDY
            ) from error
