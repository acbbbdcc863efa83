"""What plants for one owner, and the resources that several plants need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from infra.lifecycle.account.aws import Client, Clients
from infra.lifecycle.leftovers.found import Key
from infra.lifecycle.leftovers.ownership import StackName
from infra.spec.names import database_of
from infra.spec.settings.loading import PROJECT

REGION = "us-east-1"
ACCOUNT = "123456789012"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose resources are planted.

    Attributes:
        environment: name of the environment, and so of the cluster and everything with a fixed name.
        tags: tags of what the program makes; empty for a stranger whose names look alike.
        clients: clients of moto's account.
    """

    environment: str
    tags: Mapping[str, str]
    clients: Clients

    @property
    def stack(self) -> StackName:
        return StackName(self.environment, ACCOUNT)


def stack_tags(environment: str, **more: str) -> Mapping[str, str]:
    """Tags as the program gives them."""
    return {"platform": PROJECT, "stack": f"{PROJECT}/{environment}", "owner": "you@example.com", **more}


def pairs_of(tags: Mapping[str, str], *, prefix: str = "") -> list[dict[str, str]]:
    """Tags as most services take them."""
    return [{f"{prefix}Key": key, f"{prefix}Value": value} for key, value in tags.items()]


def iam_document(action: str, **who_or_what: object) -> str:
    statement = {"Effect": "Allow", "Action": action, **who_or_what}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@dataclass
class Planter:
    """Plants for one owner, and notes what in `keys`."""

    owner: Owner
    keys: set[Key] = field(default_factory=set)

    def client(self, service: str) -> Client:
        return self.owner.clients.of(service, REGION)

    def note(self, kind: str, id_: str) -> str:
        self.keys.add(Key(kind, id_, REGION))
        return id_

    @property
    def cluster_name(self) -> str:
        return self.owner.stack.cluster

    @property
    def pairs(self) -> list[dict[str, str]]:
        return pairs_of(self.owner.tags)

    @property
    def controller_pairs(self) -> list[dict[str, str]]:
        """Tags of what a controller in the cluster makes; none for an owner without tags."""
        return pairs_of({f"kubernetes.io/cluster/{self.cluster_name}": "owned"} if self.owner.tags else {})

    @property
    def balancer_tags(self) -> Mapping[str, Any]:
        """The parameter with the tags of AWS Load Balancer Controller; none for an owner without tags."""
        return {"Tags": pairs_of({"elbv2.k8s.aws/cluster": self.cluster_name})} if self.owner.tags else {}

    def tagging(self, type_: str, *, by_controller: bool = False) -> Mapping[str, Any]:
        """EC2's parameter with the tags of a new resource; none for an owner without tags."""
        pairs = self.controller_pairs if by_controller else self.pairs
        return {"TagSpecifications": [{"ResourceType": type_, "Tags": pairs}]} if pairs else {}

    @cached_property
    def vpc(self) -> str:
        made = self.client("ec2").create_vpc(CidrBlock="10.0.0.0/16", **self.tagging("vpc"))
        return self.note("VPC", made["Vpc"]["VpcId"])

    @cached_property
    def subnet(self) -> str:
        cidr = {"VpcId": self.vpc, "CidrBlock": "10.0.1.0/24"}
        made = self.client("ec2").create_subnet(**cidr, **self.tagging("subnet"))
        return self.note("subnet", made["Subnet"]["SubnetId"])

    @cached_property
    def cluster(self) -> str:
        network, role = {"subnetIds": [self.subnet]}, f"arn:aws:iam::{ACCOUNT}:role/cluster"
        self.client("eks").create_cluster(
            name=self.cluster_name, roleArn=role, resourcesVpcConfig=network, tags=dict(self.owner.tags)
        )
        return self.note("EKS cluster", self.cluster_name)

    @cached_property
    def file_system(self) -> str:
        made = self.client("efs").create_file_system(CreationToken=self.cluster_name, Tags=self.pairs)
        return self.note("EFS file system", made["FileSystemId"])

    @cached_property
    def volume(self) -> str:
        where = {"AvailabilityZone": f"{REGION}a", "Size": 100, "VolumeType": "gp3"}
        made = self.client("ec2").create_volume(**where, **self.tagging("volume", by_controller=True))
        return self.note("EBS volume", made["VolumeId"])

    @cached_property
    def database(self) -> str:
        name = database_of(self.cluster_name)
        login = {"MasterUsername": "mlflow", "MasterUserPassword": "not-a-secret"}
        size = {"DBInstanceClass": "db.t4g.small", "Engine": "postgres", "AllocatedStorage": 20}
        self.client("rds").create_db_instance(DBInstanceIdentifier=name, Tags=self.pairs, **size, **login)
        return self.note("RDS instance", name)

    @cached_property
    def key(self) -> str:
        made = self.client("kms").create_key(Tags=pairs_of(self.owner.tags, prefix="Tag"))
        return self.note("KMS key", made["KeyMetadata"]["KeyId"])

    @cached_property
    def role(self) -> str:
        """A role with an inline policy."""
        name, iam = f"node-of-{self.owner.environment}", self.client("iam")
        trust = iam_document("sts:AssumeRole", Principal={"Service": "ec2.amazonaws.com"})
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust, Tags=self.pairs)
        document = iam_document("s3:ListBucket", Resource="*")
        iam.put_role_policy(RoleName=name, PolicyName="inline", PolicyDocument=document)
        return self.note("IAM role", name)

    @cached_property
    def topic(self) -> str:
        return self.note("SNS topic", self.client("sns").create_topic(Name=f"{self.cluster_name}-alerts")["TopicArn"])

    @cached_property
    def vault(self) -> str:
        name = f"vault-of-{self.owner.environment}"
        self.client("backup").create_backup_vault(BackupVaultName=name, BackupVaultTags=dict(self.owner.tags))
        return self.note("backup vault", name)
