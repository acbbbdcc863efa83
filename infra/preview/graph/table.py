"""The resources of a recording as a table, grouped by component."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Table

from infra.preview.recording import Recording, Resource

_SDK_ALIAS = "type="
"""Prefix of type-only aliases, which the SDK adds to resources whose type was renamed upstream."""


def resource_table(recording: Recording) -> Table:
    """A table with a row per resource, a section per top-level component, and the counts as caption."""
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
    """Descriptions of a resource's options, except those that every resource of the stack has."""
    switches = {
        "protect": resource.protect,
        "retain on delete": resource.retain_on_delete,
        "delete before replace": resource.delete_before_replace,
    }
    yield from (words for words, is_on in switches.items() if is_on)
    lists: dict[str, Iterable[str]] = {
        "ignore": resource.ignore_changes,
        "replace on": resource.replace_on_changes,
        "replace with": resource.replace_with,
        "deleted with": filter(None, [resource.deleted_with]),
        "alias": [alias for alias in resource.aliases if not alias.startswith(_SDK_ALIAS)],
        "secret": sorted(resource.secrets),
        "after": [_type_and_name(urn) for urn in _explicit_dependencies(resource)],
        **{f"{operation} within": [limit] for operation, limit in sorted(resource.custom_timeouts.items())},
    }
    for words, members in lists.items():
        shown = ", ".join(one.rpartition("::")[2] for one in members)
        if shown:
            yield f"{words} {shown}"


def _explicit_dependencies(resource: Resource) -> list[str]:
    """URNs of dependencies that no property refers to."""
    referenced = {urn for urns in resource.property_dependencies.values() for urn in urns}
    return sorted(set(resource.dependencies) - referenced)


def _short(token: str) -> str:
    """A type token as the class in Pulumi's Python SDK: aws:ec2/vpc:Vpc is aws.ec2.Vpc."""
    package, module, name = token.split(":")
    return ".".join((package, module.partition("/")[0], name))


def _type_and_name(urn: str) -> str:
    """Type and logical name of a resource."""
    _, _, types, name = urn.split("::")
    return f"{types.rpartition(':')[2]} {name}"


def _path(resource: Resource, by_urn: dict[str, Resource]) -> str:
    """Names of a resource's ancestors, the outermost first."""
    names: list[str] = []
    parent = resource.parent
    while parent is not None:
        names.append(by_urn[parent].name)
        parent = by_urn[parent].parent
    return "/".join(reversed(names))
