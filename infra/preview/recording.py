"""What the program would ask of Pulumi's engine, recorded in this process: no engine, no plugin, no credentials.

Pulumi's own mocks hand over a resource's inputs only. The request itself also holds its options (protect, dependencies,
aliases and the rest), and most of what a stack gets wrong stands there; so the monitor here keeps the whole request.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import alias_pb2, resource_pb2
from pulumi.runtime.settings import Settings, configure, get_stack
from pulumi.runtime.stack import run_in_stack

from infra.aws import exports, program
from infra.preview.recorded_outputs import call_result, computed, physical_id
from infra.spec.settings.loading import NAMESPACE
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.crds import CrdSource
from platform_charts.install.platform import install

_STACK_TYPE = "pulumi:pulumi:Stack"


class Unknown(Enum):
    """The value of a property that is known only after resources it depends on exist."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return self.name


UNKNOWN = Unknown.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource as the program registers it.

    Attributes:
        type: type token, e.g. `aws:ec2/vpc:Vpc`.
        name: logical name.
        urn: identity in the stack.
        properties: inputs in the provider's spelling (camelCase) as plain data. Secrets are unwrapped, what is unknown
            in a preview is `UNKNOWN`.
        secrets: dotted paths of the secret inputs, and names of the outputs that are to be kept secret.
        parent: urn of the parent, None at the top.
        provider: urn of the explicit provider, None for components and default providers.
        protect: whether Pulumi refuses to delete it; here and below the option's value after inheritance.
        retain_on_delete: whether AWS keeps it when Pulumi deletes it.
        delete_before_replace: whether a replacement deletes first.
        ignore_changes: property paths whose drift is left alone.
        replace_on_changes: property paths whose change replaces the resource.
        aliases: earlier urns, or `name=…,type=…` where an alias is given by parts.
        dependencies: urns of everything it waits for.
        property_dependencies: urns by the property whose value comes from them.
        deleted_with: urn of the resource whose deletion takes this one along.
        custom_timeouts: `create`, `update` and `delete` in Go's spelling, where set.
        is_component: whether it only groups others.
    """

    type: str
    name: str
    urn: str
    properties: dict[str, Any]
    secrets: frozenset[str]
    parent: str | None
    provider: str | None
    protect: bool
    retain_on_delete: bool
    delete_before_replace: bool
    ignore_changes: tuple[str, ...]
    replace_on_changes: tuple[str, ...]
    aliases: tuple[str, ...]
    dependencies: tuple[str, ...]
    property_dependencies: dict[str, tuple[str, ...]]
    deleted_with: str | None
    custom_timeouts: dict[str, str]
    is_component: bool


@dataclass(frozen=True)
class Recording:
    """The graph of a program.

    Attributes:
        resources: everything it registers, in the order of their urns.
        outputs: stack outputs by name, as plain data; `UNKNOWN` where a preview cannot know.
        secret_outputs: dotted paths of the secret ones.
    """

    resources: tuple[Resource, ...]
    outputs: dict[str, Any]
    secret_outputs: frozenset[str] = field(default_factory=frozenset)

    def of_type(self, type_: str) -> tuple[Resource, ...]:
        """Every resource of this type token."""
        return tuple(one for one in self.resources if one.type == type_)

    def find(self, type_: str, name: str) -> Resource:
        """The resource of this type token and logical name.

        Raises:
            KeyError: there is none, or more than one; names what there is of the type.
        """
        found = [one for one in self.of_type(type_) if one.name == name]
        if len(found) != 1:
            raise KeyError(f"{len(found)} resources {name!r} of {type_}: {[one.name for one in self.of_type(type_)]}")
        return found[0]

    def children(self, urn: str) -> tuple[Resource, ...]:
        """Resources whose parent is `urn`."""
        return tuple(one for one in self.resources if one.parent == urn)


def record(settings: StackSettings, *, crds: CrdSource | None = None, is_preview: bool = False) -> Recording:
    """Evaluate the stack's program for one environment.

    Args:
        settings: the environment.
        crds: where custom resource definitions come from; None leaves them out, so that no chart has to be at hand.
        is_preview: outputs of resources are unknown, as in the preview of a stack that does not exist yet.

    Raises:
        StackError: the program refuses the settings or the release.
    """

    def evaluate() -> None:
        platform = program.make_platform(settings)
        install(platform, crds=crds)
        exports.export(platform)

    return record_program(
        evaluate,
        stack=settings.environment.name,
        account=settings.aws.allowed_accounts[0],
        region=settings.aws.region,
        is_preview=is_preview,
    )


def record_program(
    program: Callable[[], None], *, stack: str, account: str, region: str, is_preview: bool = False
) -> Recording:
    """Evaluate any program; each call starts from nothing, so that a process may record as often as it likes.

    Args:
        program: registers resources and exports outputs.
        stack: name of the stack.
        account: the AWS account that mocked ARNs are of.
        region: the AWS region that mocked ARNs are of.
        is_preview: outputs of resources are unknown.
    """
    monitor = _RecordingMonitor(account=account, region=region, is_preview=is_preview)
    # Pulumi keeps its settings and the root resource in context variables: a context of its own isolates the run.
    contextvars.copy_context().run(_run, program, monitor, stack)
    return monitor.recording()


def _run(program: Callable[[], None], monitor: _RecordingMonitor, stack: str) -> None:
    engine = mocks.MockEngine(None)
    configure(Settings(NAMESPACE, stack, monitor=monitor, engine=engine, dry_run=monitor.is_preview))
    asyncio.run(_evaluate(program))


async def _evaluate(program: Callable[[], None]) -> None:
    # What fails is raised once below; each of the hundreds of futures that wait for it would print it again.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)

    async def until_settled() -> None:
        program()
        await _settle()

    await run_in_stack(until_settled)


async def _settle() -> None:
    """Wait for all that the program has begun, or for the first failure.

    Pulumi waits too, but asks every open output anew whenever one of them is there: the square of thousands. It finds
    them done now; what failed stays with it, and is raised by it.
    """
    this = asyncio.current_task()
    while begun := asyncio.all_tasks() - {this}:
        done, _ = await asyncio.wait(begun, return_when=asyncio.FIRST_EXCEPTION)
        if any(task.exception() for task in done):
            return


class _Mocks(mocks.Mocks):
    """What the providers would answer."""

    def __init__(self, account: str, region: str) -> None:
        self.account = account
        self.region = region

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """Answer a provider function."""
        return call_result(args.token, account=self.account, region=self.region), []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """Unused: the monitor answers registrations itself."""
        raise NotImplementedError


class _RecordingMonitor(mocks.MockMonitor):
    """A resource monitor that keeps every request, and answers as the providers would."""

    def __init__(self, *, account: str, region: str, is_preview: bool) -> None:
        super().__init__(_Mocks(account, region))
        self._account = account
        self._region = region
        self.is_preview = is_preview
        self._recorded: dict[str, Resource] = {}
        self._outputs: dict[str, Any] = {}
        self._secret_outputs: frozenset[str] = frozenset()

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """The engine's own rule, which the mock shortens: the types of all ancestors, without the stack's."""
        kind = type_ if _is_stack(parent) else f"{parent.split('::')[2]}${type_}"
        return f"urn:pulumi:{get_stack()}::{NAMESPACE}::{kind}::{name}"

    def recording(self) -> Recording:
        """What has been recorded so far."""
        ordered = (self._recorded[urn] for urn in sorted(self._recorded))
        return Recording(tuple(ordered), self._outputs, self._secret_outputs)

    def RegisterResource(  # noqa: N802  # the name of the RPC
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Keep the request; answer with its inputs and, outside a preview, what the provider would compute."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == _STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        if urn in self._recorded:
            raise ValueError(f"two resources have the urn {urn}")
        resource = _resource(urn, request)
        self._recorded[urn] = resource
        answer = struct_pb2.Struct()
        answer.CopyFrom(request.object)
        if not request.custom:
            return resource_pb2.RegisterResourceResponse(urn=urn, object=answer)
        id_ = physical_id(resource.type, resource.name, resource.properties)
        facts = computed(resource.type, id_, resource.properties, account=self._account, region=self._region)
        _complete(answer, facts, is_preview=self.is_preview)
        return resource_pb2.RegisterResourceResponse(urn=urn, id="" if self.is_preview else id_, object=answer)

    def RegisterResourceOutputs(  # noqa: N802  # the name of the RPC
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Keep the outputs of the stack; those of components repeat what is known already."""
        if request.urn.split("::")[2] == _STACK_TYPE:
            self._outputs, self._secret_outputs = _plain(request.outputs)
        return empty_pb2.Empty()


def _complete(answer: struct_pb2.Struct, facts: Mapping[str, Any], *, is_preview: bool) -> None:
    """Add what a provider computes to what the program gave; a preview says of it that it is unknown."""
    for key, value in facts.items():
        if key not in answer:
            answer[key] = rpc.UNKNOWN if is_preview else value
        elif isinstance(answer[key], struct_pb2.Struct):
            _complete(answer[key], value, is_preview=is_preview)


def _resource(urn: str, request: resource_pb2.RegisterResourceRequest) -> Resource:
    properties, secrets = _plain(request.object)
    timeouts = json_format.MessageToDict(request.customTimeouts) if request.HasField("customTimeouts") else {}
    return Resource(
        type=request.type,
        name=request.name,
        urn=urn,
        properties=properties,
        secrets=secrets | frozenset(request.additionalSecretOutputs),
        parent=request.parent if not _is_stack(request.parent) else None,
        provider=request.provider.rpartition("::")[0] or None,
        protect=request.protect,
        retain_on_delete=request.retainOnDelete,
        delete_before_replace=request.deleteBeforeReplace,
        ignore_changes=tuple(request.ignoreChanges),
        replace_on_changes=tuple(request.replaceOnChanges),
        aliases=(*request.aliasURNs, *map(_alias, request.aliases)),
        dependencies=tuple(sorted(request.dependencies)),
        property_dependencies={key: tuple(sorted(value.urns)) for key, value in request.propertyDependencies.items()},
        deleted_with=request.deletedWith or None,
        custom_timeouts={key: value for key, value in timeouts.items() if value},
        is_component=not request.custom,
    )


def _is_stack(urn: str) -> bool:
    return not urn or urn.split("::")[2] == _STACK_TYPE


def _alias(alias: alias_pb2.Alias) -> str:
    if alias.urn:
        return alias.urn
    return ",".join(f"{part.name}={value}" for part, value in alias.spec.ListFields() if value)


def _plain(struct: struct_pb2.Struct) -> tuple[dict[str, Any], frozenset[str]]:
    """The struct as plain data, and the dotted paths of its secrets."""
    secrets: set[str] = set()
    document: dict[str, object] = json_format.MessageToDict(struct)
    return {key: _value(value, key, secrets) for key, value in document.items()}, frozenset(secrets)


def _value(value: object, path: str, secrets: set[str]) -> object:
    if isinstance(value, dict):
        if value.get(rpc._special_sig_key) == rpc._special_secret_sig:  # noqa: SLF001  # the wire format's own marks
            secrets.add(path)
            return _value(value["value"], path, secrets)
        return {key: _value(inner, f"{path}.{key}", secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner, f"{path}.{index}", secrets) for index, inner in enumerate(value)]
    if value == rpc.UNKNOWN:
        return UNKNOWN
    return int(value) if isinstance(value, float) and value.is_integer() else value
