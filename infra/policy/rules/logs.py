"""What happened can be read afterwards, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

_CONTROL_PLANE_LOGS = frozenset({"api", "audit", "authenticator"})
_PROD_DAYS = 90


@resource_rule(tokens.LOG_GROUP, remedy="set retention_in_days; 90 or more in prod")
def logs_are_kept_for_a_stated_time(group: Subject) -> Iterator[str]:
    """A log group says how long it keeps what is written; without it, for ever. In prod it is a quarter at least."""
    days = group.get("retentionInDays")
    if days is UNKNOWN:
        return
    if not days:
        yield "retentionInDays is not set, so that logs are kept and paid for for ever"
    elif group.kind is EnvironmentKind.PROD and days < _PROD_DAYS:
        yield f"retentionInDays is {days:g}, in prod"


@resource_rule(tokens.CLUSTER, remedy="list api, audit and authenticator in cluster.logs")
def the_api_server_keeps_a_record(cluster: Subject) -> Iterator[str]:
    """The control plane logs who asked for what."""
    missing = sorted(_CONTROL_PLANE_LOGS - set(cluster.each("enabledClusterLogTypes")))
    if missing:
        yield f"does not log {', '.join(missing)}"


@stack_rule(
    remedy="make the log group /aws/eks/<cluster>/cluster before the cluster, and have the cluster depend on it"
)
def the_log_group_of_the_cluster_is_ours(graph: Graph) -> Iterator[Breach]:
    """The control plane's log group is a resource: one that EKS makes has no retention, no key, and survives the stack."""
    names = [group.get("name") for group in graph.of(tokens.LOG_GROUP)]
    for cluster in graph.of(tokens.CLUSTER):
        name = cluster.get("name")
        if name is not UNKNOWN and UNKNOWN not in names and f"/aws/eks/{name}/cluster" not in names:
            yield Breach(cluster, f"log group /aws/eks/{name}/cluster is no resource of the stack")


@stack_rule(remedy="make a FlowLog with traffic_type ALL for the VPC")
def networks_keep_flow_logs(graph: Graph) -> Iterator[Breach]:
    """Every VPC keeps flow logs of all traffic."""
    for vpc in graph.of(tokens.VPC):
        if not any(log.says("trafficType", "ALL") for log in graph.about(vpc, tokens.FLOW_LOG, "vpcId")):
            yield Breach(vpc, "has no flow log of all traffic")


@resource_rule(tokens.DATABASE, remedy="set enabled_cloudwatch_logs_exports to postgresql")
def databases_export_their_log(database: Subject) -> Iterator[str]:
    """A database's log outlives it."""
    if "postgresql" not in database.each("enabledCloudwatchLogsExports"):
        yield "enabledCloudwatchLogsExports lacks postgresql"
