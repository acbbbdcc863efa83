"""The recorded graphs, committed as files, and what a change does to the stacks that were made from them.

A file has one line per resource, in the order of their names: its inputs and those options that differ from their
defaults. What holds state is written out in full; elsewhere a value longer than a few words is a digest.

    .venv/bin/python -m tests.infra.preview.snapshot

shows how the graphs differ from the files and writes the files anew. Run it when a difference is meant, and say in the
commit why. It refuses where state would be lost, unless `--accept-loss` says that this is meant too. What the stacks of the
last release were made from is in `released.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from infra.preview.graph.document import without_secrets
from infra.preview.recording import UNKNOWN, Recording, Resource
from infra.spec.release import load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph

GRAPHS = Path(__file__).with_name("graphs")
Snapshot = Mapping[str, Mapping[str, Any]]
"""Inputs and options by resource; a resource is named as in its URN, `parent types$type::name`."""

_LONGEST = 60
"""Characters of a value that is shown as it is."""

_NOT_OPTIONS = frozenset({"type", "name", "urn", "properties", "is_component"})

STATE: Mapping[str, str] = {
    "aws:s3/bucket:Bucket": "every object in the bucket",
    "aws:rds/instance:Instance": "every experiment and run in MLflow's database",
    "aws:efs/fileSystem:FileSystem": "datasets and every team's runs",
    "aws:eks/cluster:Cluster": "the control plane with everything that runs on it",
    "aws:ec2/vpc:Vpc": "the network with everything in it",
    "aws:ec2/subnet:Subnet": "the nodes, databases and mount targets in the subnet",
    "aws:kms/key:Key": "everything that is encrypted with the key",
    "aws:ecr/repository:Repository": "every image in the repository",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "what jobs see in /mnt/lustre, until it is imported again",
}
"""What is lost when a resource of a type is deleted or replaced."""

REPLACING: Mapping[str, tuple[str, ...]] = {
    "aws:s3/bucket:Bucket": ("bucket", "bucketPrefix", "objectLockEnabled"),
    "aws:rds/instance:Instance": (
        "availabilityZone", "dbName", "engine", "kmsKeyId", "snapshotIdentifier", "storageEncrypted", "username",
    ),
    "aws:efs/fileSystem:FileSystem": (
        "availabilityZoneName", "creationToken", "encrypted", "kmsKeyId", "performanceMode",
    ),
    "aws:eks/cluster:Cluster": (
        "accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons",
        "kubernetesNetworkConfig.ipFamily", "kubernetesNetworkConfig.serviceIpv4Cidr", "name", "roleArn",
    ),
    "aws:ec2/vpc:Vpc": ("cidrBlock", "ipv4IpamPoolId", "ipv4NetmaskLength"),
    "aws:ec2/subnet:Subnet": ("availabilityZone", "availabilityZoneId", "cidrBlock", "ipv6Native", "outpostArn"),
    "aws:kms/key:Key": ("customKeyStoreId", "customerMasterKeySpec", "keyUsage", "multiRegion"),
    "aws:ecr/repository:Repository": ("encryptionConfigurations", "name"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        "deploymentType", "fileSystemTypeVersion", "kmsKeyId", "storageType", "subnetIds",
    ),
}  # fmt: skip
"""Inputs, by dotted path, whose change makes the AWS provider replace the resource (its schema's ForceNew)."""


def snapshot_of(recording: Recording) -> Snapshot:
    """What the files hold of a graph."""
    return {_short(one.urn): dict(_described(one)) for one in recording.resources}


def stores_of(snapshot: Snapshot) -> Snapshot:
    return {name: described for name, described in snapshot.items() if _type_of(name) in STATE}


def read_snapshot(environment: str) -> Snapshot:
    return read(_file(environment))


def read(file: Path) -> Snapshot:
    document: Snapshot = json.loads(file.read_text(encoding="utf-8"))
    return document


def rendered(snapshot: Snapshot) -> str:
    """The snapshot as JSON, one line per resource."""
    lines = (f"{json.dumps(name)}: {json.dumps(snapshot[name], sort_keys=True)}" for name in sorted(snapshot))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Every resource that came, went or changed, with the name of each input or option that differs."""
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"{name}: is gone"
        elif name not in before:
            yield f"{name}: is new"
        else:
            old, new = before[name], after[name]
            for key in sorted(key for key in {*old, *new} if old.get(key) != new.get(key)):
                yield f"{name}: {key} was {_compact(old.get(key))}, is {_compact(new.get(key))}"


def losses(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """What the stack of `before` would lose if it were updated to `after`."""
    for name, old in sorted(before.items()):
        type_ = _type_of(name)
        if type_ not in STATE:
            continue
        found = successor(name, after)
        if found is None:
            yield (
                f"{name}: is gone, and no resource has its URN as an alias; the stack would lose {STATE[type_]}. "
                "Keep it, or give what takes its place an alias"
            )
            continue
        new = after[found]
        paths = (*REPLACING[type_], *new.get("replace_on_changes", ()))
        for path in (path for path in paths if _kept(_at(old, path)) != _kept(_at(new, path))):
            yield (
                f"{name}: {path} was {_compact(_at(old, path))}, is {_compact(_at(new, path))}, which replaces the "
                f"resource; the stack would lose {STATE[type_]}. Restore the value"
            )


def _kept(value: object) -> object:
    """A value without the path of a role, which an update ignores (infra/aws/iam.py)."""
    return re.sub(r":role/rtp-[a-z0-9-]+/", ":role/", value) if isinstance(value, str) else value


def successor(name: str, after: Snapshot) -> str | None:
    """The resource of `after` that takes over an earlier one's state: of the same name, or with the earlier one as an alias."""
    return name if name in after else next((one for one in after if _is_alias(one, name, after)), None)


def main(arguments: list[str] | None = None) -> int:
    """Write the files anew; 3 where state would be lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.infra.preview.snapshot", description=__doc__)
    parser.add_argument("--accept-loss", action="store_true", help="write the files although stacks would lose state")
    options = parser.parse_args(arguments)
    after = {environment: snapshot_of(graph(environment)) for environment in ENVIRONMENTS}
    before = {environment: read_snapshot(environment) for environment in after if _file(environment).is_file()}
    lost = [f"{name}: {line}" for name in before for line in losses(before[name], after[name])]
    for name, recorded in before.items():
        for line in differences(recorded, after[name]):
            print(f"{name}: {line}")
    if lost and not options.accept_loss:
        print(*lost, "Nothing was written; --accept-loss writes all the same.", sep="\n", file=sys.stderr)
        return 3
    for environment, snapshot in after.items():
        _file(environment).write_text(rendered(snapshot), encoding="utf-8")
    return 0


def _file(environment: str) -> Path:
    return GRAPHS / f"{environment}.json"


def _described(resource: Resource) -> Iterator[tuple[str, Any]]:
    """Options by name, and inputs by `inputs.name`, as the files have them."""
    sources = {name: urns for name, urns in resource.property_dependencies.items() if urns}
    for name, value in {**vars(resource), "property_dependencies": sources}.items():
        if value and name not in _NOT_OPTIONS:
            yield name, _shown(value, is_full=name in {"aliases", "replace_on_changes"})
    for name, value in without_secrets(resource).items():
        yield f"inputs.{name}", _shown(value, is_full=resource.type in STATE)


def _shown(value: object, *, is_full: bool) -> object:
    plain = _plain(value)
    text = json.dumps(plain, sort_keys=True)
    return plain if is_full or len(text) <= _LONGEST else f"sha256:{sha256(text.encode()).hexdigest()[:16]}"


def _plain(value: object) -> object:
    """Data as JSON has it; URNs without the stack, and the platform's own version by name: every release changes it."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    if isinstance(value, str):
        return "{platform}" if value == load_release().platform else _short(value)
    return "{unknown}" if value is UNKNOWN else value


def _short(urn: str) -> str:
    return "::".join(urn.split("::")[2:]) if urn.startswith("urn:pulumi:") else urn


def _type_of(name: str) -> str:
    return name.partition("::")[0].rpartition("$")[2]


def _is_alias(name: str, earlier: str, snapshot: Snapshot) -> bool:
    """Whether a resource, or one that it lies in, says by an alias that it was `earlier` before."""
    parent = snapshot.get(snapshot[name].get("parent", ""), {})
    if parent.get("aliases") and _own(name) == _own(earlier):
        return True
    for alias in snapshot[name].get("aliases", ()):
        parts = dict(part.partition("=")[::2] for part in alias.split(","))
        type_, label = _own(name)
        if alias == earlier or (parts.get("type", type_), parts.get("name", label)) == _own(earlier) != _own(name):
            return True
    return False


def _own(name: str) -> tuple[str, str]:
    return _type_of(name), name.partition("::")[2]


def _at(described: Mapping[str, Any], path: str) -> object:
    """An input by its dotted path, None where there is none."""
    first, *inner = path.split(".")
    value: Any = described.get(f"inputs.{first}")
    for part in inner:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _compact(value: object) -> str:
    return "absent" if value is None else json.dumps(value, sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
