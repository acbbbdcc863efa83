"""Every resource of a recording as a table, grouped by the component it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Table

from infra.preview.recording import Recording, Resource

_OF_THE_SDK = "type="
"""Beginning of aliases by type only: the SDK gives them to every resource whose type was renamed upstream."""


def of(recording: Recording) -> Table:
    """The table: one row a resource, one section a top-level component, and a last line that counts."""
    table = Table(title_justify="left")
    for column in ("component", "type", "name", "options"):
        table.add_column(column, overflow="fold")
    by_urn = {one.urn: one for one in recording.resources}
    rows = sorted((_path(one, by_urn), one.type, one.name, one) for one in recording.resources if not one.is_component)
    top = ""
    for path, _, _, one in rows:
        if path.partition("/")[0] != top:
            table.add_section()
        top = path.partition("/")[0]
        table.add_row(path, _short(one.type), one.name, "; ".join(options_of(one)))
    table.caption = f"{len(rows)} resources in {len(recording.resources) - len(rows)} components"
    table.caption_justify = "left"
    return table


def options_of(resource: Resource) -> Iterator[str]:
    """The options a resource has, as words, without those that every resource of the stack has."""
    switches = {
        "protect": resource.protect,
        "retain on delete": resource.retain_on_delete,
        "delete before replace": resource.delete_before_replace,
    }
    yield from (words for words, is_on in switches.items() if is_on)
    lists: dict[str, Iterable[str]] = {
        "ignore": resource.ignore_changes,
        "replace on": resource.replace_on_changes,
        "deleted with": filter(None, [resource.deleted_with]),
        "alias": [alias for alias in resource.aliases if not alias.startswith(_OF_THE_SDK)],
        "secret": sorted(resource.secrets),
        "after": [_called(urn) for urn in _waited_for(resource)],
        **{f"{operation} within": [limit] for operation, limit in sorted(resource.custom_timeouts.items())},
    }
    for words, members in lists.items():
        shown = ", ".join(one.rpartition("::")[2] for one in members)
        if shown:
            yield f"{words} {shown}"


def _waited_for(resource: Resource) -> list[str]:
    """URNs that the resource waits for without taking a value from them, apart from what those contain."""
    taken = {urn for urns in resource.property_dependencies.values() for urn in urns}
    return sorted(set(resource.dependencies) - taken)


def _short(token: str) -> str:
    """A type token as Pulumi's Python SDK spells it: aws:ec2/vpc:Vpc is aws.ec2.Vpc."""
    package, module, name = token.split(":")
    return ".".join((package, module.partition("/")[0], name))


def _called(urn: str) -> str:
    """Type and name of a resource, as people call it."""
    _, _, types, name = urn.split("::")
    return f"{types.rpartition(':')[2]} {name}"


def _path(resource: Resource, by_urn: dict[str, Resource]) -> str:
    """Names of the components around a resource, the outermost first."""
    names: list[str] = []
    parent = resource.parent
    while parent is not None:
        names.append(by_urn[parent].name)
        parent = by_urn[parent].parent
    return "/".join(reversed(names))
