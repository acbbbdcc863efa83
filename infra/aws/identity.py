"""IAM roles: one for the nodes, and one per workload that its pods assume through EKS Pod Identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.cluster import Cluster
from infra.aws.context import BuildContext
from infra.aws.database import Database
from infra.aws.dataset_access import read_datasets, read_sources
from infra.aws.encryption import KEY_USE_ACTIONS, Encryption
from infra.aws.iam import Role, RoleArgs, Scope, Statement, trust_nodes, trust_pods
from infra.aws.logs import ContainerLogs
from infra.aws.reaper_access import reap
from infra.aws.registry import pull_through_prefix
from infra.aws.storage import Storage
from infra.spec import names
from infra.spec.names import (
    ARTIFACT_FOLDER,
    BACKUP_FOLDER,
    CNI_ACCOUNT,
    PLATFORM_ACCOUNTS,
    ServiceAccount,
    trainer_account,
)
from infra.spec.outputs import Workload

_TEAM_NAMESPACE = "${aws:PrincipalTag/kubernetes-namespace}"
"""Policy variable for the pod's namespace, which Pod Identity sets as a session tag."""

_OBJECT_ACTIONS = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
_DESCRIBE_ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeTags",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)


def make_node_role(context: BuildContext) -> Role:
    """Make the role of every node. Pods cannot assume it, because the metadata service's hop limit is 1."""
    caches = [
        context.scope.arn("ecr", f"repository/{pull_through_prefix(context.name_prefix, upstream)}/*")
        for upstream in context.settings.registry.pull_through
    ]
    first_pull = Statement(sid="MirrorAtFirstPull", actions=("ecr:CreateRepository",), resources=caches)
    return Role(
        "node",
        RoleArgs(
            description="The nodes of the cluster",
            trust=trust_nodes(),
            statements=(first_pull,) if caches else (),
            managed=(
                "AmazonEKSWorkerNodePolicy",
                "AmazonEC2ContainerRegistryPullOnly",
                "AmazonSSMManagedInstanceCore",
            ),
        ),
        context.opts,
    )


def make_cni_role(context: BuildContext) -> Role | None:
    """Make the role of the VPC CNI, so that the node role does not need its permissions; None if another CNI add-on is there."""
    if not context.settings.cluster.installs("vpc-cni"):
        return None
    return Role(
        "vpc-cni",
        RoleArgs(
            description="Network interfaces of the nodes",
            trust=trust_pods([CNI_ACCOUNT], cluster_arn=context.scope.cluster_arn),
            managed=("AmazonEKS_CNI_Policy",),
        ),
        context.opts,
    )


@dataclass(frozen=True, kw_only=True)
class IdentityArgs:
    """Resources that the workloads' permissions refer to.

    Attributes:
        scope: cluster, account and region of the roles.
        cluster_name: name of the cluster, as an output of the cluster.
        teams: names of the teams.
        dataset_buckets: BUCKET or BUCKET/FOLDER that a team's jobs may read, by team.
        checkpoints_arn: bucket for checkpoints.
        artifacts_arn: bucket for MLflow's artifacts.
        storage_key_arn: KMS key of both buckets.
        file_system_arn: file system for the datasets and the teams' runs.
        access_point_arns: access points of the file system.
        volume_key_arn: KMS key of persistent volumes.
        database_secret_arn: secret of the database's master user.
        database_key_arn: KMS key of that secret.
        alert_topic: name of the SNS topic for alerts; None without one.
        webhook_secret: name of the secret with the alert webhook's URL; None without a webhook.
        log_group_arn: log group of the pods' logs; None if they are not shipped to CloudWatch.
        dataset_sources: names of the buckets that datasets are copied from.
        has_ebs_driver: whether the stack installs the EBS driver; another one has a role already.
        has_efs_driver: whether the stack installs the EFS driver.
        has_reaper: whether the stack removes expired test clusters of the account.
        discovery_tags: tags of the Auto Scaling groups that the autoscaler may change.
    """

    scope: Scope
    cluster_name: pulumi.Input[str]
    teams: Sequence[str]
    dataset_buckets: Mapping[str, Sequence[str]]
    checkpoints_arn: pulumi.Input[str]
    artifacts_arn: pulumi.Input[str]
    storage_key_arn: pulumi.Input[str]
    file_system_arn: pulumi.Input[str]
    access_point_arns: Sequence[pulumi.Input[str]]
    volume_key_arn: pulumi.Input[str]
    database_secret_arn: pulumi.Input[str]
    database_key_arn: pulumi.Input[str]
    alert_topic: str | None
    webhook_secret: str | None
    log_group_arn: pulumi.Input[str] | None
    dataset_sources: Sequence[str]
    has_ebs_driver: bool
    has_efs_driver: bool
    has_reaper: bool
    discovery_tags: Mapping[str, str]


class Identity(pulumi.ComponentResource):
    """One role per workload, with its Pod Identity associations.

    Attributes:
        roles: role by workload.
    """

    roles: Mapping[Workload, Role]

    def __init__(self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Identity", name, None, opts)
        self._args = args
        self.roles = {
            "mlflow": self._make_role("mlflow", "The MLflow server", self._mlflow()),
            "mlflow-backup": self._make_role("mlflow-backup", "Backups of MLflow", self._mlflow_backup()),
            "autoscaler": self._make_role("autoscaler", "The cluster autoscaler", self._autoscaler()),
            **self._driver_roles(),
            "monitoring": self._make_role("monitoring", "Alertmanager", self._monitoring()),
            **({"trainer": self._make_role("trainer", "Training jobs", self._trainer())} if args.teams else {}),
            **(
                {"logs": self._make_role("logs", "The log shipper", self._logs(args.log_group_arn))}
                if args.log_group_arn is not None
                else {}
            ),
            **(
                {"data-sync": self._make_role("data-sync", "Copies of datasets", read_sources(args.dataset_sources))}
                if args.dataset_sources
                else {}
            ),
        }
        if args.has_reaper:
            self.roles["reaper"] = self._make_role("reaper", "Removal of expired test clusters", reap())
        self.register_outputs({"roles": {workload: role.arn for workload, role in self.roles.items()}})

    def _driver_roles(self) -> dict[Workload, Role]:
        """Roles of the storage drivers that the stack installs."""
        roles: dict[Workload, Role] = {}
        if self._args.has_ebs_driver:
            managed = ("service-role/AmazonEBSCSIDriverPolicy",)
            roles["ebs-csi"] = self._make_role("ebs-csi", "Persistent volumes", self._ebs_csi(), managed=managed)
        if self._args.has_efs_driver:
            roles["efs-csi"] = self._make_role("efs-csi", "Mounts of the file system", self._efs_csi())
        return roles

    def _accounts(self, workload: Workload) -> Sequence[ServiceAccount]:
        if workload == "trainer":
            return [trainer_account(team) for team in self._args.teams]
        return PLATFORM_ACCOUNTS[workload]

    def _make_role(
        self, workload: Workload, description: str, statements: Sequence[Statement], *, managed: Sequence[str] = ()
    ) -> Role:
        accounts, child_opts = self._accounts(workload), pulumi.ResourceOptions(parent=self)
        role = Role(
            workload,
            RoleArgs(
                description=description,
                trust=trust_pods(accounts, cluster_arn=self._args.scope.cluster_arn),
                statements=statements,
                managed=managed,
            ),
            child_opts,
        )
        # EKS creates the associations of add-ons, and rejects a second one for the same service account.
        for account in () if workload in {"ebs-csi", "efs-csi"} else accounts:
            aws.eks.PodIdentityAssociation(
                f"{account.namespace}-{account.name}",
                cluster_name=self._args.cluster_name,
                namespace=account.namespace,
                service_account=account.name,
                role_arn=role.arn,
                opts=child_opts,
            )
        return role

    def _only_via(self, service: str) -> Mapping[str, Mapping[str, str]]:
        """Condition that limits a KMS key to requests made through this service."""
        return {"StringEquals": {"kms:ViaService": f"{service}.{self._args.scope.region}.amazonaws.com"}}

    def _trainer(self) -> tuple[Statement, ...]:
        """A team's jobs read and write their namespace's prefix in the checkpoint bucket, and read the team's datasets."""
        bucket = self._args.checkpoints_arn
        return (
            Statement(
                sid="CheckpointsOfTheTeam",
                actions=_OBJECT_ACTIONS,
                resources=(pulumi.Output.concat(bucket, f"/{_TEAM_NAMESPACE}/*"),),
            ),
            Statement(
                sid="ListOfTheTeam",
                actions=("s3:ListBucket",),
                resources=(bucket,),
                condition={"StringLike": {"s3:prefix": [f"{_TEAM_NAMESPACE}/*"]}},
            ),
            self._storage_key(),
            *read_datasets(self._args.dataset_buckets),
        )

    def _mlflow(self) -> tuple[Statement, ...]:
        """The server reads and writes artifacts, and neither reads nor writes backups."""
        artifacts = pulumi.Output.concat(self._args.artifacts_arn, f"/{ARTIFACT_FOLDER}/*")
        return (
            Statement(sid="Artifacts", actions=_OBJECT_ACTIONS, resources=(artifacts,)),
            Statement(sid="ListArtifacts", actions=("s3:ListBucket",), resources=(self._args.artifacts_arn,)),
            self._storage_key(),
            *self._database_password(),
        )

    def _mlflow_backup(self) -> tuple[Statement, ...]:
        """Backup and drill read artifacts in any version, and write backups, which nothing but the lifecycle deletes."""
        bucket = self._args.artifacts_arn
        artifacts, backups = (
            pulumi.Output.concat(bucket, f"/{folder}/*") for folder in (ARTIFACT_FOLDER, BACKUP_FOLDER)
        )
        return (
            Statement(
                sid="ReadArtifactsAndBackups",
                actions=("s3:GetObject", "s3:GetObjectVersion"),
                resources=(artifacts, backups),
            ),
            Statement(sid="WriteBackups", actions=("s3:PutObject", "s3:AbortMultipartUpload"), resources=(backups,)),
            Statement(sid="ListVersions", actions=("s3:ListBucket", "s3:ListBucketVersions"), resources=(bucket,)),
            self._storage_key(),
            *self._database_password(),
        )

    def _database_password(self) -> tuple[Statement, ...]:
        return (
            Statement(
                sid="DatabasePassword",
                actions=("secretsmanager:GetSecretValue",),
                resources=(self._args.database_secret_arn,),
            ),
            Statement(
                sid="KeyOfThePassword",
                actions=("kms:Decrypt",),
                resources=(self._args.database_key_arn,),
                condition=self._only_via("secretsmanager"),
            ),
        )

    def _storage_key(self) -> Statement:
        return Statement(
            sid="KeyOfTheBucket",
            actions=("kms:Decrypt", "kms:GenerateDataKey"),
            resources=(self._args.storage_key_arn,),
            condition=self._only_via("s3"),
        )

    def _autoscaler(self) -> tuple[Statement, ...]:
        """Describe every group, scale those of the stack (cluster-autoscaler, AWS provider, "IAM policy")."""
        scope = self._args.scope
        return (
            Statement(sid="LookAtGroups", actions=_DESCRIBE_ACTIONS, resources=("*",)),
            Statement(
                sid="LookAtNodeGroups",
                actions=("eks:DescribeNodegroup",),
                resources=(scope.arn("eks", f"nodegroup/{scope.cluster_name}/*/*"),),
            ),
            Statement(
                sid="MoveOwnGroups",
                actions=("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"),
                resources=(scope.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/eks-*"),),
                condition={
                    "StringEquals": {
                        f"aws:ResourceTag/{key}": value for key, value in self._args.discovery_tags.items()
                    }
                },
            ),
        )

    def _ebs_csi(self) -> tuple[Statement, ...]:
        """Use of the volume key; AWS's managed policy for the driver has the rest."""
        key = self._args.volume_key_arn
        return (
            Statement(sid="EncryptVolumes", actions=KEY_USE_ACTIONS, resources=(key,)),
            Statement(
                sid="LendTheKeyToEbs",
                actions=("kms:CreateGrant",),
                resources=(key,),
                condition={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            ),
        )

    def _efs_csi(self) -> tuple[Statement, ...]:
        """Mount through the stack's access points; no dynamic provisioning."""
        args = self._args
        return (
            Statement(
                sid="MountByAccessPoint",
                actions=("elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"),
                resources=(args.file_system_arn,),
                condition={"StringEquals": {"elasticfilesystem:AccessPointArn": list(args.access_point_arns)}},
            ),
            Statement(
                sid="FindMountTargets",
                actions=("elasticfilesystem:DescribeFileSystems", "elasticfilesystem:DescribeMountTargets"),
                resources=(args.file_system_arn,),
            ),
            Statement(
                sid="FindAccessPoints",
                actions=("elasticfilesystem:DescribeAccessPoints",),
                resources=(args.file_system_arn, *args.access_point_arns),
            ),
            Statement(sid="FindZones", actions=("ec2:DescribeAvailabilityZones",), resources=("*",)),
        )

    def _monitoring(self) -> tuple[Statement, ...]:
        args, statements = self._args, list[Statement]()
        if args.alert_topic is not None:
            topic = args.scope.arn("sns", args.alert_topic)
            statements.append(Statement(sid="MailAlerts", actions=("sns:Publish",), resources=(topic,)))
        if args.webhook_secret is not None:
            # Secrets Manager appends a hyphen and six random characters to the name.
            arn = args.scope.arn("secretsmanager", f"secret:{args.webhook_secret}-??????")
            read = ("secretsmanager:GetSecretValue",)
            statements.append(Statement(sid="AlertWebhook", actions=read, resources=(arn,)))
        return tuple(statements)

    def _logs(self, log_group_arn: pulumi.Input[str]) -> tuple[Statement, ...]:
        """Create streams in the group and write to them (Fluent Bit manual, "Amazon CloudWatch", permissions)."""
        actions, streams = ("logs:CreateLogStream", "logs:PutLogEvents"), pulumi.Output.concat(log_group_arn, ":*")
        return (Statement(sid="ShipLogs", actions=actions, resources=(streams,)),)


def make_identity(
    context: BuildContext,
    encryption: Encryption,
    cluster: Cluster,
    storage: Storage,
    database: Database,
    *,
    container_logs: ContainerLogs | None,
) -> Identity:
    """Make the workloads' roles."""
    file_system, monitoring = storage.file_system, context.settings.monitoring
    args = IdentityArgs(
        scope=context.scope,
        cluster_name=cluster.name,
        teams=[team.name for team in context.settings.teams],
        dataset_buckets={team.name: team.dataset_buckets for team in context.settings.teams},
        checkpoints_arn=storage.checkpoints.arn,
        artifacts_arn=storage.artifacts.arn,
        storage_key_arn=encryption.keys["storage"],
        file_system_arn=file_system.arn,
        access_point_arns=[file_system.datasets.arn, *(point.arn for point in file_system.teams.values())],
        volume_key_arn=encryption.keys["volumes"],
        database_secret_arn=database.secret_arn,
        database_key_arn=encryption.keys["database"],
        alert_topic=None if monitoring.alert_email is None else names.alert_topic_name(context.settings),
        webhook_secret=monitoring.webhook_secret,
        log_group_arn=None if container_logs is None else container_logs.arn,
        dataset_sources=context.settings.storage.dataset_sources,
        has_ebs_driver=context.settings.cluster.installs("aws-ebs-csi-driver"),
        has_efs_driver=context.settings.cluster.installs("aws-efs-csi-driver"),
        has_reaper=context.settings.reaper is not None,
        discovery_tags=names.discovery_tags(context.settings),
    )
    return Identity("identity", args, context.opts)
