"""The pack as the engine runs it: a separate process that serves gRPC."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
import yaml
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime import rpc
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from infra.policy import tokens
from infra.policy.graph import KIND_TAG, UNKNOWN
from infra.spec.release import load_release
from infra.spec.release_rules import ROOT
from tests.infra.policy.compliant import TAGS, compliant_stack
from tests.infra.spec.samples import Tree

PACK = ROOT / "infra" / "policy"
P = "properties"


@pytest.fixture(scope="module")
def engine() -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    pack = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.policy", "127.0.0.1:0", str(PACK)],
        cwd=PACK,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert pack.stdout is not None
    with pack, grpc.insecure_channel(f"127.0.0.1:{pack.stdout.readline().strip()}") as channel:
        yield analyzer_pb2_grpc.AnalyzerStub(channel)
        pack.kill()


def struct(properties: object) -> struct_pb2.Struct:
    """Properties as protobuf, with unknown values as the engine encodes them."""

    def encoded(value: object) -> object:
        if isinstance(value, dict):
            return {key: encoded(member) for key, member in value.items()}
        if isinstance(value, list):
            return [encoded(member) for member in value]
        return rpc.UNKNOWN if value is UNKNOWN else value

    return json_format.ParseDict(encoded(properties), struct_pb2.Struct())


def request(changes: Tree, kind: str = "prod") -> analyzer_pb2.AnalyzeStackRequest:
    provider = analyzer_pb2.AnalyzerProviderResource(
        type="pulumi:providers:aws", properties=struct({"defaultTags": {"tags": {**TAGS, KIND_TAG: kind}}}), name="aws"
    )
    return analyzer_pb2.AnalyzeStackRequest(
        resources=[
            analyzer_pb2.AnalyzerResource(
                type=one.type,
                name=one.name,
                urn=one.urn,
                properties=struct(one.properties),
                options=analyzer_pb2.AnalyzerResourceOptions(protect=one.protect),
                provider=provider if one.default_tags else None,
                propertyDependencies={
                    prop: analyzer_pb2.AnalyzerPropertyDependencies(urns=sorted(urns))
                    for prop, urns in one.references.items()
                },
            )
            for one in compliant_stack(changes).resources
        ]
    )


def findings(engine: analyzer_pb2_grpc.AnalyzerStub, changes: Tree, kind: str = "prod") -> set[tuple[str, str]]:
    """Rule and resource of every violation, from resource validation and stack validation."""
    stack = request(changes, kind)
    found = list(engine.AnalyzeStack(stack).diagnostics)
    for one in stack.resources:
        if one.type == tokens.STACK:
            continue  # its outputs are only known at the end
        single = analyzer_pb2.AnalyzeRequest(
            type=one.type, name=one.name, urn=one.urn, properties=one.properties, options=one.options
        )
        if one.HasField("provider"):
            single.provider.CopyFrom(one.provider)
        found += engine.Analyze(single).diagnostics
    return {(one.message.partition(": ")[0].splitlines()[-1], one.urn) for one in found}


def test_the_pack_has_the_version_of_the_release(engine: analyzer_pb2_grpc.AnalyzerStub) -> None:
    assert {one.name for one in engine.GetAnalyzerInfo(empty_pb2.Empty()).policies} == {"resources", "stack"}
    assert yaml.safe_load((PACK / "PulumiPolicy.yaml").read_text())["version"] == load_release().platform


def test_the_pack_reports_violations_of_resource_and_stack_rules(engine: analyzer_pb2_grpc.AnalyzerStub) -> None:
    assert findings(engine, {}) == set()
    changes = {f"efs.{P}.encrypted": False, "bucket-policy": ..., "bucket.protect": False, f"stack.{P}.token": "x"}
    assert findings(engine, changes) == {
        ("file-systems-are-encrypted", "efs"),
        ("buckets-require-tls", "bucket"),
        ("stateful-resources-are-protected", "bucket"),
        ("outputs-hold-no-secrets", "stack"),
    }
    assert findings(engine, {"bucket.protect": False, "nat": ...}, kind="dev") == set(), "the provider names the kind"


def test_an_unknown_value_does_not_abort_a_rule(engine: analyzer_pb2_grpc.AnalyzerStub) -> None:
    changes = {f"bucket-policy.{P}.policy": UNKNOWN, f"database.{P}.kmsKeyId": UNKNOWN, "efs-policy": ...}
    assert findings(engine, changes) == {("file-systems-require-tls", "efs")}
