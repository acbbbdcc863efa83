"""A double of the AWS provider for the real Pulumi engine: a provider server that keeps resources in memory.

The real provider is not on package registries, and moto lacks much of what the stack needs (`tests.infra.provider` lists it).
The engine drives this one as it drives the real one: checks, diffs, replacements, previews with unknown values. Repositories and
clusters are created in moto too, because the program and the commands ask AWS for them. What it cannot show: whether AWS accepts
the inputs.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

import boto3
import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN

from tests.engines.aws_resources import (
    NAME_INPUTS,
    REPLACING,
    UNKNOWN_IN_PREVIEW,
    Place,
    Properties,
    computed,
    found_by,
    new_id,
)

_SECRET = "4dabf18193072939515e22adb298388d"
"""Key of the signature that marks a value as special, e.g. secret, in the engine's protocol."""

_STRUCTURED = frozenset({"allowedAccountIds", "defaultTags"})
"""Arguments of the provider that are used here and are not text."""

_HOLD_SECONDS = 300.0
"""How long the answer to a held creation waits at most, so that a failed test ends."""

_LARGE = [(f"grpc.max_{way}_message_length", 400 << 20) for way in ("receive", "send")]

Message = Any
"""A message of the provider protocol; its generated class has no types."""

Context = Any
"""gRPC's context of a call."""


Call = Literal["create", "update", "delete"]
"""An operation on a resource."""

_REFUSALS: Mapping[Call, str] = {
    "create": "LimitExceeded: no more than there are: {}",
    "update": "ResourceInUseException: {} has an update in progress",
    "delete": "DependencyViolation: {} has a dependent object",
}
"""What AWS says when it does not do an operation now."""


@dataclass
class Held:
    """A change that AWS has made, and whose answer waits.

    Attributes:
        made: set once the change is made.
        answered: set it to answer.
    """

    made: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)


class AwsProvider(provider_pb2_grpc.ResourceProviderServicer):
    """The provider server.

    Attributes:
        calls: operation and URN of every change, in order.
        ids: ID of every resource that exists, by URN.
        cancelled: set once the engine has been told to stop.
        outside: what somebody changed in AWS, inputs by URN; None for what they deleted.
        node_groups: tags of every node group, by name.
        refusals: how often AWS will still refuse an operation on the resources of a type, e.g. ("delete", "ec2/securityGroup").
    """

    def __init__(self, place: Place, session: boto3.Session) -> None:
        self._place = place
        self._session = session
        self._names: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        self._held: dict[tuple[Call, str], Held] = {}
        self._default_tags: dict[str, str] = {}
        self._made: dict[tuple[str, str], tuple[Properties, Properties]] = {}
        self.calls: list[tuple[str, str]] = []
        self.ids: dict[str, str] = {}
        self.cancelled = threading.Event()
        self.outside: dict[str, Properties | None] = {}
        self.node_groups: dict[str, dict[str, str]] = {}
        self.refusals: dict[tuple[Call, str], int] = {}

    def hold(self, kind: str, call: Call = "create") -> Held:
        """Let the answer to the next operation on a type, e.g. eks/cluster, wait."""
        self._held[call, kind] = Held()
        return self._held[call, kind]

    def Attach(self, request: Message, context: Context) -> empty_pb2.Empty:  # noqa: N802, ARG002
        """The engine's own address, which is not needed."""
        return empty_pb2.Empty()

    def Handshake(self, request: Message, context: Context) -> provider_pb2.ProviderHandshakeResponse:  # noqa: N802, ARG002
        """What the provider understands."""
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)

    def GetPluginInfo(self, request: Message, context: Context) -> plugin_pb2.PluginInfo:  # noqa: N802, ARG002
        """The version, that of the SDK."""
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi-aws"))

    def CheckConfig(self, request: Message, context: Context) -> provider_pb2.CheckResponse:  # noqa: N802, ARG002
        """Accept every configuration."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Message, context: Context) -> provider_pb2.DiffResponse:  # noqa: N802, ARG002
        """No configuration replaces resources."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Message, context: Context) -> provider_pb2.ConfigureResponse:  # noqa: N802
        """Refuse an account that the stack does not allow, as the real provider does."""
        given = {key: _structured(value) for key, value in _plain(request.args).items() if key in _STRUCTURED}
        allowed = given.get("allowedAccountIds", [])
        self._default_tags = given.get("defaultTags", {}).get("tags", {})
        if self._place.account not in allowed:
            context.abort(grpc.StatusCode.UNKNOWN, f"AWS account ID not allowed: {self._place.account}")
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=True
        )

    def Check(self, request: Message, context: Context) -> provider_pb2.CheckResponse:  # noqa: N802, ARG002
        """Make a physical name of the logical one if none is given; it stays the same until a replacement."""
        key, inputs = NAME_INPUTS.get(_kind(request.urn)), struct_pb2.Struct()
        inputs.CopyFrom(request.news)
        if key and key not in inputs.fields:
            if key in request.olds.fields:
                inputs.fields[key].CopyFrom(request.olds.fields[key])
            else:
                suffix = hashlib.sha256(request.randomSeed).hexdigest()[:7]
                inputs.fields[key].string_value = f"{_name(request.urn)}-{suffix}"
        return provider_pb2.CheckResponse(inputs=inputs)

    def Diff(self, request: Message, context: Context) -> provider_pb2.DiffResponse:  # noqa: N802, ARG002
        """Compare inputs; some replace the resource."""
        old = _without(_plain(request.old_inputs), request.ignoreChanges)
        new = _without(_plain(request.news), request.ignoreChanges)
        changed = sorted(key for key in {*old, *new} if not key.startswith("__") and old.get(key) != new.get(key))
        replacing = [key for key in changed if key in REPLACING.get(_kind(request.urn), ())]
        kind = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=kind, diffs=changed, replaces=replacing)

    def Create(self, request: Message, context: Context) -> provider_pb2.CreateResponse:  # noqa: N802
        """Create a resource; AWS refuses a second one with the same physical name."""
        kind = _kind(request.urn)
        if request.preview:
            return provider_pb2.CreateResponse(id="", properties=_previewed(kind, request.properties))
        self._refuse("create", kind, _name(request.urn), context)
        inputs = _plain(request.properties)
        id_ = new_id(kind, _name(request.urn), inputs)
        with self._lock:
            self.calls.append(("create", request.urn))
            self.outside.pop(request.urn, None)
            taken = self._names.setdefault((kind, id_), request.urn) if kind in NAME_INPUTS else request.urn
        if taken != request.urn:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"{kind} {id_} exists: {taken}")
        self._create_elsewhere(kind, id_, {**self._default_tags, **inputs.get("tags", {})})
        outputs = {**inputs, **computed(kind, id_, inputs, self._place)}
        self._made[kind, id_], self.ids[request.urn] = (inputs, outputs), id_
        self._wait("create", kind)
        return provider_pb2.CreateResponse(id=id_, properties=_struct(outputs))

    def Read(self, request: Message, context: Context) -> provider_pb2.ReadResponse:  # noqa: N802, ARG002
        """What was created, with what somebody has changed since; an import finds it too."""
        if request.urn in self.outside:
            return self._changed(request, self.outside[request.urn])
        if request.properties.fields or (_kind(request.urn), request.id) not in self._made:
            return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)
        inputs, outputs = self._made[_kind(request.urn), request.id]
        return provider_pb2.ReadResponse(id=request.id, properties=_struct(outputs), inputs=_struct(inputs))

    def _changed(self, request: Message, change: Properties | None) -> provider_pb2.ReadResponse:
        if change is None:
            return provider_pb2.ReadResponse(id="")
        inputs, outputs = ({**_plain(one), **change} for one in (request.inputs, request.properties))
        return provider_pb2.ReadResponse(id=request.id, properties=_struct(outputs), inputs=_struct(inputs))

    def Update(self, request: Message, context: Context) -> provider_pb2.UpdateResponse:  # noqa: N802
        """Change a resource; a launch template gets a new version."""
        old = _plain(request.olds)
        if request.preview:
            outputs = struct_pb2.Struct()
            outputs.CopyFrom(request.olds)
            for key, value in request.news.fields.items():
                outputs.fields[key].CopyFrom(value)
            if "latestVersion" in old:
                outputs.fields["latestVersion"].string_value = UNKNOWN
            return provider_pb2.UpdateResponse(properties=outputs)
        kind = _kind(request.urn)
        self._refuse("update", kind, request.id, context)
        with self._lock:
            self.calls.append(("update", request.urn))
            self.outside.pop(request.urn, None)
        new = {**old, **_plain(request.news)}
        if "latestVersion" in old:
            new["latestVersion"] = old["latestVersion"] + 1
        if kind == "eks/cluster":
            new["vpcConfig"] = {**old["vpcConfig"], **new["vpcConfig"]}
        if self._wait("update", kind):
            self.outside[request.urn] = _plain(request.news)
        return provider_pb2.UpdateResponse(properties=_struct(new))

    def Delete(self, request: Message, context: Context) -> empty_pb2.Empty:  # noqa: N802
        """Delete a resource."""
        kind = _kind(request.urn)
        self._refuse("delete", kind, request.id, context)
        with self._lock:
            self.calls.append(("delete", request.urn))
            self._names.pop((kind, request.id), None)
            self.ids.pop(request.urn, None)
            if kind == "eks/nodeGroup":
                self.node_groups.pop(request.id, None)
        if kind == "eks/cluster":
            self._session.client("eks").delete_cluster(name=request.id)
        if kind == "ecr/repository":
            self._session.client("ecr").delete_repository(repositoryName=request.id, force=True)
        if self._wait("delete", kind):
            self.outside[request.urn] = None
        return empty_pb2.Empty()

    def Invoke(self, request: Message, context: Context) -> provider_pb2.InvokeResponse:  # noqa: N802
        """Answer for the account and for clusters that exist already; the program asks for nothing else."""
        answer = found_by(request.tok, _plain(request.args), self._place)
        if answer is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"invoke {request.tok}")
        return provider_pb2.InvokeResponse(**{"return": _struct(answer or {})})

    def Cancel(self, request: Message, context: Context) -> empty_pb2.Empty:  # noqa: N802, ARG002
        """The engine waits for what has begun."""
        self.cancelled.set()
        return empty_pb2.Empty()

    def _refuse(self, call: Call, kind: str, id_: str, context: Context) -> None:
        """Refuse what AWS still refuses."""
        with self._lock:
            left = self.refusals.get((call, kind), 0)
            self.refusals[call, kind] = max(left - 1, 0)
        if left:
            context.abort(grpc.StatusCode.UNKNOWN, _REFUSALS[call].format(f"{kind} {id_}"))

    def _wait(self, call: Call, kind: str) -> bool:
        """Keep the answer back, if it is held; returns whether it was, so that perhaps nobody hears it."""
        held = self._held.pop((call, kind), None)
        if held is not None:
            held.made.set()
            held.answered.wait(_HOLD_SECONDS)
        return held is not None

    def _create_elsewhere(self, kind: str, name: str, tags: dict[str, str]) -> None:
        if kind == "eks/nodeGroup":
            self.node_groups[name] = tags
        if kind == "ecr/repository":
            listed = [{"Key": key, "Value": value} for key, value in tags.items()]
            self._session.client("ecr").create_repository(repositoryName=name, tags=listed)
        if kind == "eks/cluster":
            role = f"arn:aws:iam::{self._place.account}:role/cluster"
            self._session.client("eks").create_cluster(name=name, roleArn=role, resourcesVpcConfig={}, tags=tags)


@contextmanager
def aws_provider(place: Place, session: boto3.Session) -> Iterator[tuple[AwsProvider, int]]:
    """Serve the double on a port of this machine, for PULUMI_DEBUG_PROVIDERS."""
    provider, server = AwsProvider(place, session), grpc.server(futures.ThreadPoolExecutor(32), options=_LARGE)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield provider, port
    finally:
        server.stop(grace=None).wait()


def _structured(value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """An argument of the provider: JSON text where the engine does not keep structures."""
    return json.loads(value) if isinstance(value, str) else value


def _kind(urn: str) -> str:
    """Module and type of a resource, e.g. ec2/vpc."""
    found = re.fullmatch(r"aws:(\w+/\w+):\w+", urn.split("::")[2].rpartition("$")[2])
    assert found is not None, urn
    return found[1]


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _plain(value: Message) -> Any:  # noqa: ANN401
    """A protocol buffer's value as plain data, without the marks of secrets."""
    if isinstance(value, struct_pb2.Struct):
        fields = {key: _plain(field) for key, field in value.fields.items()}
        return fields.get("value") if _SECRET in fields else fields
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_plain(one) for one in value.list_value.values]
    if kind in {None, "null_value"}:
        return None
    return _plain(value.struct_value) if kind == "struct_value" else getattr(value, kind)


def _struct(properties: Properties) -> struct_pb2.Struct:
    found = struct_pb2.Struct()
    found.update({key: value for key, value in properties.items() if value is not None})
    return found


def _previewed(kind: str, inputs: struct_pb2.Struct) -> struct_pb2.Struct:
    """The outputs of a creation in a preview: inputs, and unknown values for what AWS computes."""
    outputs = struct_pb2.Struct()
    outputs.CopyFrom(inputs)
    for path in ("arn", *UNKNOWN_IN_PREVIEW.get(kind, ())):
        *inner, last = path.split(".")
        node = outputs
        for key in inner:
            node = node.fields[key].struct_value
        node.fields[last].string_value = UNKNOWN
    return outputs


def _without(inputs: Properties, ignored: Message) -> Properties:
    """The inputs without those of `ignore_changes`."""
    found: Properties = json.loads(json.dumps(inputs))
    for path in ignored:
        *inner, last = path.split(".")
        node: Any = found
        for key in inner:
            node = node.get(key, {})
        node.pop(last, None)
    return found
