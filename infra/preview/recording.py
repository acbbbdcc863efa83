"""Records the resources that a program registers, in-process: no engine, no plugins, no credentials.

Pulumi's mocks see a resource's inputs only. The registration request also has the resource options (protect,
dependencies, aliases and so on), so this monitor records the whole request.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from infra.spec.settings.loading import PROJECT
from infra.spec.settings.stack import StackSettings
from platform_charts.install.platform import install

_STACK_TYPE = "pulumi:pulumi:Stack"


class Unknown(Enum):
    """Type of `UNKNOWN`, the value of a property that is only known after an update."""

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
        urn: URN of the resource.
        properties: inputs by camelCase name as plain data; secrets are unwrapped, unknown values are `UNKNOWN`.
        secrets: dotted paths of secret inputs, and names of additional secret outputs.
        parent: URN of the parent; None at the top level.
        provider: URN of the explicit provider; None for components and default providers.
        protect: the resource option, after inheritance like all options below.
        retain_on_delete: the resource option.
        delete_before_replace: the resource option.
        ignore_changes: the resource option.
        replace_on_changes: the resource option.
        aliases: URNs, or `name=…,type=…` for an alias given by parts.
        dependencies: URNs of all dependencies.
        property_dependencies: URNs by the property whose value depends on them.
        deleted_with: URN in the resource option.
        replace_with: URNs in the resource option.
        custom_timeouts: `create`, `update` and `delete` as Go durations, if set.
        is_component: whether it is a component resource.
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
    replace_with: tuple[str, ...]
    custom_timeouts: dict[str, str]
    is_component: bool


@dataclass(frozen=True)
class Recording:
    """The resource graph of a program.

    Attributes:
        resources: all registered resources, ordered by URN.
        outputs: stack outputs by name as plain data; unknown values are `UNKNOWN`.
        secret_outputs: dotted paths of secret outputs.
    """

    resources: tuple[Resource, ...]
    outputs: dict[str, Any]
    secret_outputs: frozenset[str] = field(default_factory=frozenset)

    def of_type(self, type_: str) -> tuple[Resource, ...]:
        """All resources with this type token."""
        return tuple(one for one in self.resources if one.type == type_)

    def find(self, type_: str, name: str) -> Resource:
        """The resource with this type token and logical name.

        Raises:
            KeyError: no resource, or several, match; the message lists the resources of the type.
        """
        found = [one for one in self.of_type(type_) if one.name == name]
        if len(found) != 1:
            raise KeyError(f"{len(found)} resources {name!r} of {type_}: {[one.name for one in self.of_type(type_)]}")
        return found[0]

    def children(self, urn: str) -> tuple[Resource, ...]:
        """Resources whose parent has this URN."""
        return tuple(one for one in self.resources if one.parent == urn)


def record(settings: StackSettings, *, is_preview: bool = False) -> Recording:
    """Record the stack's program for one environment.

    Args:
        settings: the environment.
        is_preview: whether resource outputs are unknown, as in the preview of a new stack.

    Raises:
        PlatformError: the settings or the release are invalid.
    """

    def evaluate() -> None:
        platform = program.make_platform(settings)
        install(platform)
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
    """Record any program; a process may record several, each with its own state.

    Args:
        program: registers resources and exports outputs.
        stack: name of the stack.
        account: AWS account of mocked ARNs.
        region: AWS region of mocked ARNs.
        is_preview: whether resource outputs are unknown.
    """
    monitor = _RecordingMonitor(account=account, region=region, is_preview=is_preview)
    # Pulumi keeps its settings and the root resource in context variables, so a new context isolates the run. It describes every frame of
    # the caller's stack for each resource: in a thread of its own that stack is short.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, _run, program, monitor, stack).result()
    return monitor.recording()


def _run(program: Callable[[], None], monitor: _RecordingMonitor, stack: str) -> None:
    engine = mocks.MockEngine(None)
    configure(Settings(PROJECT, stack, monitor=monitor, engine=engine, dry_run=monitor.is_preview))
    asyncio.run(_evaluate(program))


async def _evaluate(program: Callable[[], None]) -> None:
    # A failure is raised once below; asyncio would also log it for each of hundreds of dependent futures.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)

    async def run_and_settle() -> None:
        program()
        await _settle()

    await run_in_stack(run_and_settle)


async def _settle() -> None:
    """Wait for all tasks of the program, or for the first failure, which Pulumi then raises.

    Pulumi's own wait is quadratic: it checks every pending output whenever one resolves.
    """
    this = asyncio.current_task()
    while tasks := asyncio.all_tasks() - {this}:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if any(task.exception() for task in done):
            return


class _Mocks(mocks.Mocks):
    """Answers provider functions."""

    def __init__(self, account: str, region: str) -> None:
        self.account = account
        self.region = region

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """Answer a provider function."""
        return call_result(args.token, args.args, account=self.account, region=self.region), []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """Unused: the monitor answers registrations itself."""
        raise NotImplementedError


class _RecordingMonitor(mocks.MockMonitor):
    """A resource monitor that records every request and responds as the providers would."""

    def __init__(self, *, account: str, region: str, is_preview: bool) -> None:
        super().__init__(_Mocks(account, region))
        self._account = account
        self._region = region
        self.is_preview = is_preview
        self._recorded: dict[str, Resource] = {}
        self._outputs: dict[str, Any] = {}
        self._secret_outputs: frozenset[str] = frozenset()

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """The engine's URN, with the types of all ancestors except the stack; the mock has the parent's type only."""
        kind = type_ if _is_stack(parent) else f"{parent.split('::')[2]}${type_}"
        return f"urn:pulumi:{get_stack()}::{PROJECT}::{kind}::{name}"

    def recording(self) -> Recording:
        """The recording so far."""
        ordered = (self._recorded[urn] for urn in sorted(self._recorded))
        return Recording(tuple(ordered), self._outputs, self._secret_outputs)

    def RegisterResource(  # noqa: N802  # the name of the RPC
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Record the request; respond with its inputs and, outside a preview, the provider's computed values."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == _STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        if urn in self._recorded:
            raise ValueError(f"two resources have the URN {urn}")
        resource = _resource(urn, request)
        self._recorded[urn] = resource
        outputs = struct_pb2.Struct()
        outputs.CopyFrom(request.object)
        if not request.custom:
            return resource_pb2.RegisterResourceResponse(urn=urn, object=outputs)
        id_ = physical_id(resource.type, resource.name, resource.properties)
        computed_values = computed(resource.type, id_, resource.properties, account=self._account, region=self._region)
        _add_computed(outputs, computed_values, is_preview=self.is_preview)
        return resource_pb2.RegisterResourceResponse(urn=urn, id="" if self.is_preview else id_, object=outputs)

    def RegisterResourceOutputs(  # noqa: N802  # the name of the RPC
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Record the stack's outputs; outputs of components add nothing."""
        if request.urn.split("::")[2] == _STACK_TYPE:
            self._outputs, self._secret_outputs = _plain(request.outputs)
        return empty_pb2.Empty()


def _add_computed(outputs: struct_pb2.Struct, computed_values: Mapping[str, Any], *, is_preview: bool) -> None:
    """Add computed values to the inputs; in a preview they are unknown."""
    for key, value in computed_values.items():
        if key not in outputs:
            outputs[key] = rpc.UNKNOWN if is_preview else value
        elif isinstance(outputs[key], struct_pb2.Struct):
            _add_computed(outputs[key], value, is_preview=is_preview)


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
        replace_with=tuple(sorted(request.replace_with)),
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
        if value.get(rpc._special_sig_key) == rpc._special_secret_sig:  # noqa: SLF001  # the wire format's signatures
            secrets.add(path)
            return _value(value["value"], path, secrets)
        return {key: _value(inner, f"{path}.{key}", secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner, f"{path}.{index}", secrets) for index, inner in enumerate(value)]
    if value == rpc.UNKNOWN:
        return UNKNOWN
    return int(value) if isinstance(value, float) and value.is_integer() else value
