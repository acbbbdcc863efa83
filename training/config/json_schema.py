"""The JSON Schema of the settings, which editors use to complete and check configuration files.

`python -m training.config.json_schema` writes `training/configs/schema.json`; the file is committed and a test
compares it.
"""

from __future__ import annotations

import json
from typing import Final

from training.config.schema import TrainingSettings
from training.config.sources import SHIPPED

PATH: Final = SHIPPED / "schema.json"


def text() -> str:
    """The schema as the file holds it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **TrainingSettings.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
