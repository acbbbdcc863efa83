"""The input of the preflight's checks: the environment, and what AWS and the cluster say about it, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any, Protocol

from infra.kube.api import KubernetesApi
from infra.kube.connection import connect_to
from infra.kube.errors import ApiError
from infra.lifecycle.access.reach import Probe
from infra.lifecycle.access.running import RunningCluster
from infra.lifecycle.account.aws import Session
from infra.lifecycle.account.caller import Caller, caller_of
from infra.lifecycle.existing.cluster import FoundCluster, read_cluster
from infra.lifecycle.existing.place import Place, read_place
from infra.lifecycle.existing.vpc import Vpc, read_vpc
from infra.lifecycle.preflight.answer import Answer
from infra.lifecycle.stack.stage import AccountState, read_account
from infra.lifecycle.stack.state import export_state
from infra.spec import release_rules
from infra.spec.catalog import Catalog
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.names import CLUSTER_ADMIN, cluster_name, stack_tag
from infra.spec.outputs import ClusterOutput
from infra.spec.release import ReleaseManifest
from infra.spec.settings import StackSettings
from infra.spec.stack_outputs import NoStackError
from platform_charts.charts.crds import CrdSource


class Connect(Protocol):
    """Connects to an API server."""

    def __call__(self, cluster: ClusterOutput, /, *, region: str) -> KubernetesApi:
        """The connection."""
        ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """The input of every check; what AWS says about caller and account is read once, as no check changes it.

    Attributes:
        settings: the environment.
        catalog: the instance catalogue.
        release: the release manifest.
        project: versions in the project's own files.
        session: boto3 session in the environment's region.
        now: the time, with its zone.
        cluster: the running cluster, if any.
        crds: the CRDs of this release.
        probe: what this machine reaches.
        connect: connects to a cluster, for what runs on an existing one.
    """

    settings: StackSettings
    catalog: Catalog
    release: ReleaseManifest
    project: release_rules.Project
    session: Session
    now: datetime
    cluster: RunningCluster
    crds: CrdSource
    probe: Probe
    connect: Connect = connect_to

    @cached_property
    def caller(self) -> Caller:
        """Who the session's credentials belong to.

        Raises:
            RefusedError: there are no valid credentials.
        """
        return caller_of(self.session)

    @cached_property
    def state(self) -> Mapping[str, Any] | None:
        """The exported state of the stack; None if there is no stack.

        Raises:
            PlatformError: pulumi failed; carries its message.
        """
        try:
            return export_state(self.settings.environment.name)
        except NoStackError:
            return None

    @cached_property
    def account(self) -> AccountState:
        """What the account has of the environment.

        Raises:
            RefusedError: AWS does not answer, or refuses these credentials.
        """
        return read_account(self.settings, self.release, self.session)

    @cached_property
    def place(self) -> Place:
        """Where the environment's stack is, if it is anywhere yet."""
        return read_place(self.settings, self.session)

    @cached_property
    def existing_vpc(self) -> Vpc | None:
        """What AWS says about the existing VPC; None if there is none, or the settings name none."""
        return read_vpc(self.settings, self.session)

    @cached_property
    def existing_cluster(self) -> FoundCluster | None:
        """What AWS says about the existing cluster; None if there is none, or the settings name none."""
        return read_cluster(self.settings, self.session, stack=stack_tag(self.settings))

    @cached_property
    def existing_api(self) -> KubernetesApi | None:
        """The API server of the existing cluster; None if there is none, or it has none yet.

        Raises:
            PlatformError: there is no way to connect to it.
        """
        found = self.existing_cluster
        output = None if found is None else found.output
        return None if output is None else self.connect(output, region=self.settings.aws.region)

    @property
    def api(self) -> KubernetesApi | None:
        """The API server of the stack's cluster, or of the existing one that it goes to; None if there is none yet.

        Raises:
            PlatformError: the stack's outputs cannot be read, or there is no way to connect.
        """
        return self.cluster.api() or self.existing_api

    @cached_property
    def crds_of_cluster(self) -> tuple[Manifest, ...] | None:
        """CRDs of the cluster that the platform is, or is to be, installed on; None if there is no cluster yet.

        Raises:
            PlatformError: the cluster is unreachable or refuses the caller, or the stack's outputs cannot be read.
        """
        api = self.existing_api
        if api is None:
            return self.cluster.crds()
        try:
            return tuple(api.items("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
        except ApiError as error:
            if error.code not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
            name = cluster_name(self.settings)
            raise RefusedError(
                f"cluster {name} does not take {self.caller.arn} for an administrator: {error.args[0]}",
                remedy=f"have its owner run `aws eks create-access-entry --cluster-name {name} --principal-arn ROLE` and `aws eks "
                f"associate-access-policy --cluster-name {name} --principal-arn ROLE --policy-arn {CLUSTER_ADMIN} --access-scope "
                "type=cluster`, and add the role to cluster.existing.admins",
            ) from error


Check = Callable[[Case], Iterator[Answer]]
