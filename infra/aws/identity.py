"""Who may do what in AWS: a role for the nodes, and one for each workload, which its pods take by Pod Identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.cluster import Cluster
from infra.aws.context import BuildContext
from infra.aws.database import Database
from infra.aws.encryption import Encryption
from infra.aws.iam import Role, RoleArgs, Scope, Statement, trust_nodes, trust_pods
from infra.aws.registry import mirror_prefix
from infra.aws.storage import Storage
from infra.spec import names
from infra.spec.names import PLATFORM_ACCOUNTS, ServiceAccount, trainer_account
from infra.spec.outputs import Workload

CNI_ACCOUNT = ServiceAccount("kube-system", "aws-node")

_OF_THE_TEAM = "${aws:PrincipalTag/kubernetes-namespace}"
"""Namespace of the pod that has the credentials: Pod Identity puts it into the session's tags."""

_OBJECTS = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
_DATA_KEYS = ("kms:Decrypt", "kms:GenerateDataKey")
_VOLUME_KEYS = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:DescribeKey",
)
_LOOK_AT_GROUPS = (
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


def make_node_role(scope: Scope, *, pull_through: Sequence[str], opts: pulumi.ResourceOptions) -> Role:
    """The role of every node. Pods have roles of their own, and the hop limit of 1 keeps this one from them."""
    mirrors = [scope.arn("ecr", f"repository/{mirror_prefix(scope.cluster_name, one)}/*") for one in pull_through]
    first_pull = Statement(sid="MirrorAtFirstPull", actions=("ecr:CreateRepository",), resources=mirrors)
    return Role(
        "node",
        RoleArgs(
            description="The nodes of the cluster",
            trust=trust_nodes(),
            statements=(first_pull,) if mirrors else (),
            managed=(
                "AmazonEKSWorkerNodePolicy",
                "AmazonEC2ContainerRegistryPullOnly",
                "AmazonSSMManagedInstanceCore",
            ),
        ),
        opts,
    )


def make_cni_role(scope: Scope, *, opts: pulumi.ResourceOptions) -> Role:
    """The role of the VPC CNI, which the nodes then need not have."""
    return Role(
        "vpc-cni",
        RoleArgs(
            description="Network interfaces of the nodes",
            trust=trust_pods([CNI_ACCOUNT], cluster_arn=scope.cluster_arn),
            managed=("AmazonEKS_CNI_Policy",),
        ),
        opts,
    )


@dataclass(frozen=True, kw_only=True)
class IdentityArgs:
    """What the workloads' permissions are about.

    Attributes:
        scope: where the roles work.
        cluster_name: the cluster, when it exists.
        teams: names of the teams.
        checkpoints_arn: bucket of the checkpoints.
        artifacts_arn: bucket of MLflow's artifacts.
        storage_key_arn: KMS key of both.
        file_system_arn: file system of the datasets and of the teams' runs.
        access_point_arns: its access points.
        volume_key_arn: KMS key of persistent volumes.
        database_secret_arn: secret of the database's master user.
        database_key_arn: KMS key of that secret.
        alert_topic: name of the topic that mails alerts; None mails nobody.
        webhook_secret: name of the secret that alerts are posted by; None posts nowhere.
    """

    scope: Scope
    cluster_name: pulumi.Input[str]
    teams: Sequence[str]
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


class Identity(pulumi.ComponentResource):
    """One role per workload, and its associations.

    Attributes:
        roles: role by workload.
    """

    roles: Mapping[Workload, Role]

    def __init__(self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Identity", name, None, opts)
        self._args = args
        self.roles = {
            "mlflow": self._make_role("mlflow", "The MLflow server", self._mlflow()),
            "autoscaler": self._make_role("autoscaler", "The cluster autoscaler", self._autoscaler()),
            "ebs-csi": self._make_role(
                "ebs-csi", "Persistent volumes", self._ebs_csi(), managed=("service-role/AmazonEBSCSIDriverPolicy",)
            ),
            "efs-csi": self._make_role("efs-csi", "Mounts of the file system", self._efs_csi()),
            "monitoring": self._make_role("monitoring", "Alertmanager", self._monitoring()),
            **({"trainer": self._make_role("trainer", "Training jobs", self._trainer())} if args.teams else {}),
        }
        self.register_outputs({"roles": {workload: role.arn for workload, role in self.roles.items()}})

    def _accounts(self, workload: Workload) -> Sequence[ServiceAccount]:
        if workload == "trainer":
            return [trainer_account(team) for team in self._args.teams]
        return PLATFORM_ACCOUNTS[workload]

    def _make_role(
        self, workload: Workload, description: str, statements: Sequence[Statement], *, managed: Sequence[str] = ()
    ) -> Role:
        accounts, below = self._accounts(workload), pulumi.ResourceOptions(parent=self)
        role = Role(
            workload,
            RoleArgs(
                description=description,
                trust=trust_pods(accounts, cluster_arn=self._args.scope.cluster_arn),
                statements=statements,
                managed=managed,
            ),
            below,
        )
        # Add-ons name their roles themselves; a second association of the same account would be refused.
        for account in () if workload in {"ebs-csi", "efs-csi"} else accounts:
            aws.eks.PodIdentityAssociation(
                f"{account.namespace}-{account.name}",
                cluster_name=self._args.cluster_name,
                namespace=account.namespace,
                service_account=account.name,
                role_arn=role.arn,
                opts=below,
            )
        return role

    def _via(self, service: str) -> Mapping[str, Mapping[str, str]]:
        """The key serves this service's requests only: nobody decrypts what was not read through it."""
        return {"StringEquals": {"kms:ViaService": f"{service}.{self._args.scope.region}.amazonaws.com"}}

    def _trainer(self) -> tuple[Statement, ...]:
        """A team's jobs see what lies under their own namespace's name in the checkpoint bucket, and nothing else."""
        bucket = self._args.checkpoints_arn
        return (
            Statement(
                sid="CheckpointsOfTheTeam",
                actions=_OBJECTS,
                resources=(pulumi.Output.concat(bucket, f"/{_OF_THE_TEAM}/*"),),
            ),
            Statement(
                sid="ListOfTheTeam",
                actions=("s3:ListBucket",),
                resources=(bucket,),
                condition={"StringLike": {"s3:prefix": [f"{_OF_THE_TEAM}/*"]}},
            ),
            self._keys_of_storage(),
        )

    def _mlflow(self) -> tuple[Statement, ...]:
        bucket = self._args.artifacts_arn
        return (
            Statement(sid="Artifacts", actions=_OBJECTS, resources=(pulumi.Output.concat(bucket, "/*"),)),
            Statement(sid="ListArtifacts", actions=("s3:ListBucket",), resources=(bucket,)),
            self._keys_of_storage(),
            Statement(
                sid="DatabasePassword",
                actions=("secretsmanager:GetSecretValue",),
                resources=(self._args.database_secret_arn,),
            ),
            Statement(
                sid="KeyOfThePassword",
                actions=("kms:Decrypt",),
                resources=(self._args.database_key_arn,),
                condition=self._via("secretsmanager"),
            ),
        )

    def _keys_of_storage(self) -> Statement:
        return Statement(
            sid="KeyOfTheBucket",
            actions=_DATA_KEYS,
            resources=(self._args.storage_key_arn,),
            condition=self._via("s3"),
        )

    def _autoscaler(self) -> tuple[Statement, ...]:
        """Looks at every group, moves those of this cluster (cluster-autoscaler, AWS provider, "IAM policy")."""
        scope = self._args.scope
        return (
            Statement(sid="LookAtGroups", actions=_LOOK_AT_GROUPS, resources=("*",)),
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
                    "StringEquals": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{scope.cluster_name}": "owned"}
                },
            ),
        )

    def _ebs_csi(self) -> tuple[Statement, ...]:
        """The key of the volumes; the rest is AWS's own policy for the driver."""
        key = self._args.volume_key_arn
        return (
            Statement(sid="EncryptVolumes", actions=_VOLUME_KEYS, resources=(key,)),
            Statement(
                sid="LendTheKeyToEbs",
                actions=("kms:CreateGrant",),
                resources=(key,),
                condition={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            ),
        )

    def _efs_csi(self) -> tuple[Statement, ...]:
        """Mounts through the access points, as their user; the driver makes none of its own here."""
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
        args, found = self._args, list[Statement]()
        if args.alert_topic is not None:
            topic = args.scope.arn("sns", args.alert_topic)
            found.append(Statement(sid="MailAlerts", actions=("sns:Publish",), resources=(topic,)))
        if args.webhook_secret is not None:
            # Secrets Manager ends every ARN with a hyphen and six characters of its own.
            arn = args.scope.arn("secretsmanager", f"secret:{args.webhook_secret}-??????")
            found.append(Statement(sid="AlertWebhook", actions=("secretsmanager:GetSecretValue",), resources=(arn,)))
        return tuple(found)


def make_identity(
    context: BuildContext, encryption: Encryption, cluster: Cluster, storage: Storage, database: Database
) -> Identity:
    """A role for each workload, over just what it touches."""
    file_system, monitoring = storage.file_system, context.settings.monitoring
    args = IdentityArgs(
        scope=context.scope,
        cluster_name=cluster.name,
        teams=[team.name for team in context.settings.teams],
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
    )
    return Identity("identity", args, context.top)
