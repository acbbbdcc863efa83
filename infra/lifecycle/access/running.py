"""The running cluster of an environment, found through its stack's outputs."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from infra.kube.api import KubernetesApi
from infra.kube.connection import connect_to
from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.names import cluster_name
from infra.spec.outputs import ClusterOutput
from infra.spec.section import validate
from infra.spec.settings import StackSettings
from infra.spec.stack_outputs import NoStackError, outputs_of_stack

_REMEDY = "check the network and `aws sso login`; if the cluster itself is broken, repair it with `pulumi up --target`"


class RunningCluster(Protocol):
    """The running cluster of an environment, if any."""

    def crds(self) -> tuple[Manifest, ...] | None:
        """The cluster's CRDs with their status; None if there is no cluster yet.

        Raises:
            PlatformError: the stack's outputs cannot be read, or the cluster is unreachable.
        """
        ...

    def api(self) -> KubernetesApi | None:
        """The cluster's API server; None if there is no cluster yet.

        Raises:
            PlatformError: the stack's outputs cannot be read.
        """
        ...


class StackCluster:
    """The cluster in the outputs of an environment's stack; once it is found, neither they nor its CRDs are read again.

    Args:
        settings: the environment.
    """

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings
        self._api: KubernetesApi | None = None

    def crds(self) -> tuple[Manifest, ...] | None:
        """See `RunningCluster`; also None if the first `up` was interrupted before it exported outputs."""
        return self._crds

    def api(self) -> KubernetesApi | None:
        """See `RunningCluster`."""
        if self._api is None:
            self._api = self._connected()
        return self._api

    def _connected(self) -> KubernetesApi | None:
        try:
            outputs = outputs_of_stack(self._settings.environment.name)
        except NoStackError:
            return None
        if "cluster" not in outputs:
            return None
        # Only this output: a stack of an older release may not satisfy the current contract.
        file = f"output cluster of {self._settings.environment.name}"
        return connect_to(validate(ClusterOutput, outputs["cluster"], file=file), region=self._settings.aws.region)

    @cached_property
    def _crds(self) -> tuple[Manifest, ...] | None:
        api = self.api()
        if api is None:
            return None
        try:
            return tuple(api.items("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
        except (ApiError, ConnectionLostError) as error:
            raise RefusedError(
                f"cannot read the CRDs of cluster {cluster_name(self._settings)} at {api.server}: {error.args[0]}",
                remedy=_REMEDY,
            ) from error
