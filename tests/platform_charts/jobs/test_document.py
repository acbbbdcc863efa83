"""Manifests as YAML."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_charts.jobs.document import to_yaml
from platform_charts.jobs.rayjob import render_job
from tests.platform_charts.jobs.targets import job, search_job, target_of

GOLDEN = Path(__file__).with_name("golden")
DOCUMENTS: dict[str, Callable[[], str]] = {
    "rayjob.yaml": lambda: to_yaml(render_job(job(group="a100"), target_of("prod"))),
    "search.yaml": lambda: to_yaml(render_job(search_job(group="a100", driver_memory_mib=896), target_of("prod"))),
}
REGENERATE = "python -m tests.platform_charts.jobs.test_document"


def test_the_golden_documents_are_what_is_rendered() -> None:
    for name, make in DOCUMENTS.items():
        assert (GOLDEN / name).read_text(encoding="utf-8") == make(), f"{name} changed; if so it should: {REGENERATE}"


@settings(max_examples=40)  # the YAML parser takes 15 ms for each
@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t")))
def test_settings_come_back_as_they_went(text: str) -> None:
    manifests = render_job(job(settings_yaml=text), target_of("prod"))
    assert list(yaml.safe_load_all(to_yaml(manifests))) == list(manifests)


if __name__ == "__main__":
    for file, document in DOCUMENTS.items():
        (GOLDEN / file).write_text(document(), encoding="utf-8")
        sys.stdout.write(f"{GOLDEN / file}\n")
