"""Text that must match a regular expression, with the rule in words for messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema


@dataclass(frozen=True)
class Matching:
    """Annotation of `str`: the text must match a pattern; a refusal and the JSON schema's readers get the rule.

    Attributes:
        pattern: regular expression (Rust's syntax, and JavaScript's for editors), anchored where it must match the whole text.
        rule: what every valid text is, as the rest of a sentence that begins with the setting: `must be …`.
    """

    pattern: str
    rule: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Check that it is text, with pydantic's message, and then the pattern, with the rule as message."""
        matching = core_schema.custom_error_schema(
            core_schema.str_schema(pattern=self.pattern),
            custom_error_type="not_matching",
            custom_error_message=self.rule,
        )
        return core_schema.chain_schema([handler(source), matching])

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The schema of text, with the pattern."""
        return {**handler(schema), "pattern": self.pattern}
