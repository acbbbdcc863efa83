"""Checks the settings that documents name against the schema."""

from __future__ import annotations

from typing import Annotated, Any, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from training.config.schema import TrainingSettings


def check_setting(key: str, value: str | None) -> None:
    """Fail if the schema has no such setting, or the setting does not accept the value."""
    section: Any = TrainingSettings
    field = FieldInfo(annotation=TrainingSettings)
    for name in key.split("."):
        if get_origin(section) is dict:
            return
        assert isinstance(section, type), f"{key} is below a setting"
        assert issubclass(section, BaseModel), f"{key} is below a setting"
        assert name in section.model_fields, f"no setting {key}"
        field = section.model_fields[name]
        section = field.annotation
    if value is not None:
        accepted: TypeAdapter[object] = TypeAdapter(Annotated[section, field])
        accepted.validate_python(yaml.safe_load(value))
