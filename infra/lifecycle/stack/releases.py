"""Helm releases whose record and the stack's state disagree, because an update was killed between the two.

Helm keeps a record of each revision in a Secret. The record that a killed installation leaves makes every later one fail with "cannot
re-use a name that is still in use", and that of a killed upgrade with "another operation is in progress"; a release without any record
cannot be upgraded or removed (helm, pkg/action). Pulumi's provider adopts objects that exist (`upsert_existing_objects`), but no releases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.kube.api import KubernetesApi
from infra.lifecycle.stack.state import releases_in, resources_in
from infra.policy.tokens import HELM_RELEASE
from infra.spec.errors import PlatformError
from infra.spec.manifest import Manifest
from infra.spec.stack_outputs import ask_pulumi

_PENDING = ("pending-install", "pending-upgrade", "pending-rollback")
_UNINSTALLING = "uninstalling"
_DEPLOYED = "deployed"


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What makes the two agree about one release.

    Attributes:
        name: name of the release.
        namespace: its namespace.
        forgotten: Helm's records to delete. The objects stay, and the next installation or upgrade takes them over.
        is_imported: it is deployed, and comes into the state.
        urn: URN to take out of the state, since Helm has no record of it any more; empty if it has.
    """

    name: str
    namespace: str
    forgotten: tuple[Manifest, ...] = ()
    is_imported: bool = False
    urn: str = ""

    def __str__(self) -> str:
        what = f"Helm release {self.namespace}/{self.name}"
        if self.is_imported:
            return f"{what} is installed, and the state lacks it: imported"
        if not self.forgotten:
            return f"{what} is in the state, and Helm has it no more: taken out of the state"
        statuses = ", ".join(sorted({_label(one, "status") for one in self.forgotten}))
        return f"{what} was left {statuses}: Helm's record of that is deleted, and its objects are taken over"


def find_repairs(
    api: KubernetesApi, state: Mapping[str, Any], releases: Iterable[tuple[str, str]], *, is_teardown: bool = False
) -> Iterator[Repair]:
    """What makes Helm's records and a stack's state agree, while no update runs.

    Args:
        api: the API server.
        state: the exported state.
        releases: namespace and name of each release of the program.
        is_teardown: a removal follows, which Helm makes of an unfinished release as well.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    in_state = {(one["inputs"]["namespace"], one["inputs"]["name"]): str(one["urn"]) for one in releases_in(state)}
    wanted = dict.fromkeys((*releases, *in_state))
    records = _records(api, {name for _, name in wanted})
    for key in wanted:
        (namespace, name), urn, found = key, in_state.get(key), records.get(key, ())
        if urn is None:
            yield from _outside_state(namespace, name, found, is_teardown=is_teardown)
        elif not found:
            yield Repair(name=name, namespace=namespace, urn=urn)
        elif not is_teardown and (unfinished := _with_status(found, *_PENDING, _UNINSTALLING)):
            is_gone = bool(_with_status(unfinished, _UNINSTALLING))
            yield Repair(name=name, namespace=namespace, forgotten=unfinished, urn=urn if is_gone else "")


def apply_repair(api: KubernetesApi, state: Mapping[str, Any], repair: Repair, *, environment: str) -> None:
    """Make Helm's records and the state agree about one release.

    Raises:
        PlatformError: pulumi or the API server failed; carries its message.
    """
    for record in repair.forgotten:
        api.delete(record)
    if repair.is_imported:
        _import(state, repair, environment)
    if repair.urn:
        ask_pulumi(environment, "refresh", "--target", repair.urn, "--yes", "--skip-preview")


def _outside_state(namespace: str, name: str, records: tuple[Manifest, ...], *, is_teardown: bool) -> Iterator[Repair]:
    if is_teardown and records:
        yield Repair(name=name, namespace=namespace, is_imported=True)
    elif _with_status(records, _DEPLOYED):
        pending = _with_status(records, *_PENDING)
        yield Repair(name=name, namespace=namespace, forgotten=pending, is_imported=True)
    elif records:
        yield Repair(name=name, namespace=namespace, forgotten=records)


def _records(api: KubernetesApi, names: Collection[str]) -> dict[tuple[str, str], tuple[Manifest, ...]]:
    """Helm's records of the last revisions of these releases: those before are superseded, and many."""
    found: dict[tuple[str, str], tuple[Manifest, ...]] = {}
    selector = f"owner=helm,status!=superseded,name in ({','.join(sorted(names))})"
    for one in api.items("v1", "Secret", labels=selector) if names else ():
        key = (one["metadata"]["namespace"], _label(one, "name"))
        found[key] = (*found.get(key, ()), one)
    return found


def _with_status(records: Iterable[Manifest], *statuses: str) -> tuple[Manifest, ...]:
    return tuple(one for one in records if _label(one, "status") in statuses)


def _label(record: Manifest, name: str) -> str:
    return str(record["metadata"]["labels"][name])


def _import(state: Mapping[str, Any], repair: Repair, environment: str) -> None:
    parent, provider = (_urn(state, type_) for type_ in ("rtp:kubernetes:Charts", "pulumi:providers:kubernetes"))
    identifier = f"{repair.namespace}/{repair.name}"
    options = ("--parent", f"parent={parent}", "--provider", f"provider={provider}", "--protect=false")
    quiet = ("--generate-code=false", "--yes", "--skip-preview")
    ask_pulumi(environment, "import", HELM_RELEASE, repair.name, identifier, *options, *quiet)


def _urn(state: Mapping[str, Any], type_: str) -> str:
    for one in resources_in(state):
        if one["type"] == type_:
            return str(one["urn"])
    raise PlatformError(
        f"the state has no {type_}, to which a Helm release could be imported", remedy="run `make up` again"
    )
