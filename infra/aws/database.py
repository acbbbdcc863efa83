"""MLflow's backend store: RDS for PostgreSQL with encryption, TLS and an RDS-managed master password."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.cluster import Cluster
from infra.aws.context import BuildContext, protected_opts
from infra.aws.encryption import Encryption
from infra.aws.iam import Role, RoleArgs, trust_service
from infra.aws.logs import make_log_group
from infra.aws.network import Network
from infra.aws.security_groups import make_service_group
from infra.spec.names import database_identifier
from infra.spec.protection import Protection

PORT = 5432
_LOGS = ("postgresql", "upgrade")
_SLOW_STATEMENT_MS = 1000

_PARAMETERS = {
    "rds.force_ssl": "1",
    "log_connections": "1",
    "log_disconnections": "1",
    "log_min_duration_statement": str(_SLOW_STATEMENT_MS),
}
"""Parameters that differ from RDS's defaults; all are dynamic."""


@dataclass(frozen=True, kw_only=True)
class DatabaseArgs:
    """Inputs of `Database`.

    Attributes:
        identifier: physical name of the instance.
        account: AWS account.
        instance_class: e.g. db.t4g.medium.
        engine_version: PostgreSQL major version; RDS upgrades the minor version.
        is_major_upgrade_allowed: whether a higher major upgrades the instance, at once: until then its new parameter group would not fit.
        is_applied_immediately: whether changes that restart the instance do not wait for its maintenance window.
        allocated_gib: initial storage in GiB.
        max_allocated_gib: limit of storage autoscaling in GiB.
        is_multi_az: whether a standby runs in another zone.
        vpc_id: the VPC.
        subnet_ids: subnets of at least two zones.
        client_security_group_id: security group of the nodes.
        key_arn: KMS key of storage, snapshots, Performance Insights and the password.
        logs_key_arn: KMS key of the logs.
        log_days: log retention in days.
        protection: deletion protection and backups.
    """

    identifier: str
    account: pulumi.Input[str]
    instance_class: str
    engine_version: str
    is_major_upgrade_allowed: bool
    is_applied_immediately: bool
    allocated_gib: int
    max_allocated_gib: int
    is_multi_az: bool
    vpc_id: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    client_security_group_id: pulumi.Input[str]
    key_arn: pulumi.Input[str]
    logs_key_arn: pulumi.Input[str]
    log_days: int
    protection: Protection


class Database(pulumi.ComponentResource):
    """The instance with its security group, parameter group, subnet group and logs.

    Attributes:
        address: host name.
        database: name of the database.
        secret_arn: Secrets Manager secret of the master user, which RDS rotates.
    """

    address: pulumi.Output[str]
    database: pulumi.Output[str]
    secret_arn: pulumi.Output[str]

    def __init__(self, name: str, args: DatabaseArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Database", name, None, opts)
        self._args = args
        self._child_opts = pulumi.ResourceOptions(parent=self)
        instance = self._make_instance(name, self._make_security_group())
        self.address, self.database = instance.address, instance.db_name
        self.secret_arn = instance.master_user_secrets[0].secret_arn
        self.register_outputs({"address": self.address, "secretArn": self.secret_arn})

    def _make_security_group(self) -> aws.ec2.SecurityGroup:
        return make_service_group(
            "database",
            description="MLflow's database",
            vpc_id=self._args.vpc_id,
            port=PORT,
            clients="PostgreSQL from the nodes",
            client_group_id=self._args.client_security_group_id,
            opts=self._child_opts,
        )

    def _make_parameter_group(self, name: str) -> aws.rds.ParameterGroup:
        return aws.rds.ParameterGroup(
            name,
            family=f"postgres{self._args.engine_version}",
            description="TLS only, connections and slow statements logged",
            parameters=[
                aws.rds.ParameterGroupParameterArgs(name=key, value=value) for key, value in _PARAMETERS.items()
            ],
            opts=self._child_opts,
        )

    def _make_monitoring_role(self) -> Role:
        return Role(
            "database-monitoring",
            RoleArgs(
                description="Writes the database's operating system metrics",
                trust=trust_service("monitoring.rds.amazonaws.com", account=self._args.account),
                managed=("service-role/AmazonRDSEnhancedMonitoringRole",),
            ),
            self._child_opts,
        )

    def _make_log_groups(self) -> list[aws.cloudwatch.LogGroup]:
        args = self._args
        return [
            make_log_group(
                f"database-{log}",
                group=f"/aws/rds/instance/{args.identifier}/{log}",
                days=args.log_days,
                key=args.logs_key_arn,
                parent=self,
            )
            for log in _LOGS
        ]

    def _make_instance(self, name: str, security_group: aws.ec2.SecurityGroup) -> aws.rds.Instance:
        args, protection, role = self._args, self._args.protection, self._make_monitoring_role()
        subnets = aws.rds.SubnetGroup(name, subnet_ids=list(args.subnet_ids), opts=self._child_opts)
        # The security group's ID makes the name unique, so that an earlier final snapshot does not block a deletion.
        snapshot = pulumi.Output.concat(
            f"{args.identifier}-final-", security_group.id.apply(lambda id_: id_.removeprefix("sg-"))
        )
        return aws.rds.Instance(
            name,
            identifier=args.identifier,
            engine="postgres",
            engine_version=args.engine_version,
            auto_minor_version_upgrade=True,
            # Absent and not False: both do nothing, and would be a change of every stack.
            allow_major_version_upgrade=args.is_major_upgrade_allowed or None,
            apply_immediately=args.is_applied_immediately or args.is_major_upgrade_allowed or None,
            instance_class=args.instance_class,
            multi_az=args.is_multi_az,
            storage_type="gp3",
            allocated_storage=args.allocated_gib,
            max_allocated_storage=args.max_allocated_gib,
            storage_encrypted=True,
            kms_key_id=args.key_arn,
            db_name="mlflow",
            username="mlflow",
            manage_master_user_password=True,
            master_user_secret_kms_key_id=args.key_arn,
            iam_database_authentication_enabled=True,
            port=PORT,
            publicly_accessible=False,
            db_subnet_group_name=subnets.name,
            vpc_security_group_ids=[security_group.id],
            parameter_group_name=self._make_parameter_group(name).name,
            ca_cert_identifier="rds-ca-rsa2048-g1",
            backup_retention_period=protection.backup_days,
            delete_automated_backups=protection.force_destroy,
            deletion_protection=protection.deletion_protection,
            skip_final_snapshot=not protection.final_snapshot,
            final_snapshot_identifier=snapshot if protection.final_snapshot else None,
            copy_tags_to_snapshot=True,
            performance_insights_enabled=True,
            performance_insights_kms_key_id=args.key_arn,
            performance_insights_retention_period=7,
            monitoring_interval=60,
            monitoring_role_arn=role.arn,
            enabled_cloudwatch_logs_exports=list(_LOGS),
            opts=protected_opts(self, protection, depends_on=[role, *self._make_log_groups()]),
        )


def make_database(context: BuildContext, encryption: Encryption, network: Network, cluster: Cluster) -> Database:
    """Make MLflow's database."""
    database = context.settings.database
    args = DatabaseArgs(
        identifier=database_identifier(context.settings),
        account=context.account,
        instance_class=database.instance_class,
        engine_version=database.engine_version,
        is_major_upgrade_allowed=database.allow_major_upgrade,
        is_applied_immediately=database.apply_immediately,
        allocated_gib=database.allocated_gib,
        max_allocated_gib=database.max_allocated_gib,
        is_multi_az=database.multi_az,
        vpc_id=network.vpc_id,
        subnet_ids=list(network.private_subnet_ids.values()),
        client_security_group_id=cluster.security_group_id,
        key_arn=encryption.keys["database"],
        logs_key_arn=encryption.keys["logs"],
        log_days=context.settings.cluster.log_days,
        protection=context.protection,
    )
    return Database("mlflow", args, context.opts)
