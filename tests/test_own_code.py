"""docs/OWN_CODE.md: its code is that of the template, and its commands are commands of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.new_project import TEMPLATE

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "OWN_CODE.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("file", ["model.py", "data.py", "objective.py"])
def test_the_quoted_code_is_the_template_s(file: str) -> None:
    source = (TEMPLATE / "my_project" / file).read_text(encoding="utf-8")
    assert [code for code in QUOTED if code in source and source.endswith(code)]
    assert len(QUOTED) == 3


def test_the_commands_and_their_variables_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(makefile.partition("variables :=")[2].partition("\nis_typed")[0].split())
    for target, words in re.findall(r"^    make (\S+)((?: [A-Z]+=\S+)*)", PAGE, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        assert set(re.findall(r"[A-Z]+(?==)", words)) <= known, words
