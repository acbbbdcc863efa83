"""Settings of what the stack makes, which have no effect on what exists already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic_core import InitErrorDetails, PydanticCustomError

from infra.spec.section import Section


def without_effect(section: Section, keys: Sequence[str], *, what: str) -> Iterator[InitErrorDetails]:
    """An error for each of these settings that a file has, although the stack does not make what it is about.

    Args:
        section: the section, as read.
        keys: fields of the section that only something new has.
        what: what exists, e.g. `VPC`.
    """
    rule = PydanticCustomError("without_effect", f"has no effect on a {what} that exists; omit it, or omit `existing`")
    written = section.model_dump(mode="json", include=section.model_fields_set & set(keys), exclude_none=True)
    yield from (InitErrorDetails(type=rule, loc=(key,), input=written[key]) for key in keys if key in written)
