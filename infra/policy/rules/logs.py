"""Logs: enabled, managed by the stack, with a retention."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

_CONTROL_PLANE_LOGS = frozenset({"api", "audit", "authenticator"})
_MIN_PROD_DAYS = 90


@resource_rule(tokens.LOG_GROUP, remedy="set retention_in_days; 90 or more in prod")
def log_groups_have_retention(group: Resource) -> Iterator[str]:
    """Log groups have a retention, of at least 90 days in prod."""
    days = group.get("retentionInDays")
    if days is UNKNOWN:
        return
    if not days:
        yield "retentionInDays is not set, so logs never expire"
    elif group.kind is EnvironmentKind.PROD and days < _MIN_PROD_DAYS:
        yield f"retentionInDays is {days:g}, in prod"


@resource_rule(tokens.CLUSTER, remedy="list api, audit and authenticator in cluster.logs")
def control_plane_logs_are_enabled(cluster: Resource) -> Iterator[str]:
    """The control plane writes API, audit and authenticator logs."""
    missing = sorted(_CONTROL_PLANE_LOGS - set(cluster.elements("enabledClusterLogTypes")))
    if missing:
        yield f"does not log {', '.join(missing)}"


@stack_rule(remedy="add the log group /aws/eks/<cluster>/cluster, and let the cluster depend on it")
def control_plane_log_group_is_managed(graph: Graph) -> Iterator[Violation]:
    """The stack manages the control plane's log group; EKS would create one without retention and key."""
    names = [group.get("name") for group in graph.of_type(tokens.LOG_GROUP)]
    for cluster in graph.of_type(tokens.CLUSTER):
        name = cluster.get("name")
        if name is not UNKNOWN and UNKNOWN not in names and f"/aws/eks/{name}/cluster" not in names:
            yield Violation(cluster, f"log group /aws/eks/{name}/cluster is not a resource of the stack")


@stack_rule(remedy="add a FlowLog with traffic_type ALL for the VPC")
def vpcs_have_flow_logs(graph: Graph) -> Iterator[Violation]:
    """Every VPC has flow logs of all traffic."""
    for vpc in graph.of_type(tokens.VPC):
        if not any(log.is_one_of("trafficType", "ALL") for log in graph.referring_to(vpc, tokens.FLOW_LOG, "vpcId")):
            yield Violation(vpc, "has no flow log of all traffic")


@resource_rule(tokens.DATABASE, remedy="set enabled_cloudwatch_logs_exports to postgresql")
def database_logs_are_exported(database: Resource) -> Iterator[str]:
    """Databases export their log to CloudWatch, so that it outlives them."""
    if "postgresql" not in database.elements("enabledCloudwatchLogsExports"):
        yield "enabledCloudwatchLogsExports lacks postgresql"
