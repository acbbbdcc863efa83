"""The stack: settings and release in, components in the order in which they need each other, typed outputs out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from infra import naming
from infra.addons import BEFORE_NODES, AddOnArgs, AddOns
from infra.budget import Budget, BudgetArgs
from infra.buckets import Retention
from infra.capacity import launch_plan
from infra.catalog import Catalog, load_catalog
from infra.cluster import Access, Cluster, ClusterArgs
from infra.database import Database, DatabaseArgs
from infra.encryption import Encryption, EncryptionArgs
from infra.identity import CNI_ACCOUNT, Identity, IdentityArgs, Scope, make_cni_role, make_node_role
from infra.network import Network, NetworkArgs, Zone
from infra.node_groups import NodeGroup, NodeGroupArgs, NodesArgs
from infra.outputs import LABEL_PREFIX, SCHEMA_VERSION, GpuGroupOutput, StackOutputs, gpu_group_output, read_outputs
from infra.protection import protection_of
from infra.provider import account_of, make_provider
from infra.registry import Registry, RegistryArgs
from infra.release import AmiType, ReleaseManifest, load_release
from infra.settings.network import subnets_of
from infra.settings.stack import StackSettings
from infra.storage import Storage, StorageArgs

_SYSTEM_UPDATE_PERCENT = 33
