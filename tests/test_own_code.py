"""docs/OWN_CODE.md: its code is that of the template."""

from __future__ import annotations

import re
from pathlib import Path

from training.new_project import TEMPLATE

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "OWN_CODE.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_quoted_code_is_the_template_s() -> None:
    sources = [
        (TEMPLATE / "my_project" / file).read_text(encoding="utf-8") for file in ("model.py", "data.py", "objective.py")
    ]
    assert len(QUOTED) == 3
    assert all(source.endswith(code) for source, code in zip(sources, QUOTED, strict=True))
