"""All files that are written from the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.reference import command_lines, make_targets, observations, settings, variables
from tests.reference.markdown import page, section, table

ROOT: Final = Path(__file__).resolve().parents[2]
INDEX: Final = Path("docs/REFERENCE.md")
FOLDER: Final = Path("docs/reference")
ENV_EXAMPLE: Final = Path(".env.example")


class Page(NamedTuple):
    """A page of the reference."""

    name: str
    content: str
    make: Callable[[], str]


_TOPICS: Final[Mapping[str, tuple[Page, ...]]] = {
    "Commands": (
        Page("make.md", "commands of make and their variables", lambda: make_targets.make_page(_makefile())),
        Page("training.md", "`python -m training`", lambda: command_lines.program_page("training")),
        Page("tune.md", "`python -m tune`", lambda: command_lines.program_page("tune")),
        Page("lifecycle.md", "`python -m infra.lifecycle`", lambda: command_lines.program_page("infra.lifecycle")),
        Page("programs.md", "benchmarks, programs of our images, and all others", command_lines.other_programs_page),
        Page("exit-status.md", "exit statuses", observations.exit_status_page),
    ),
    "Settings": (
        Page(
            "training-settings.md",
            "settings of a run, and options of models, datasets and objectives",
            settings.training_page,
        ),
        Page("search-settings.md", "settings of a search", settings.search_page),
        Page("environment-settings.md", "settings of an environment", settings.environment_page),
        Page("environment-variables.md", "environment variables", variables.variables_page),
    ),
    "What runs report": (
        Page("metrics.md", "metrics for Prometheus", observations.metrics_page),
        Page("events.md", "events of the logs of runs and searches", observations.events_page),
    ),
}


def files() -> dict[Path, str]:
    """The text of each file, by path below the repository's root."""
    made = {FOLDER / one.name: one.make() for topic in _TOPICS.values() for one in topic}
    return {INDEX: _index(), **made, ENV_EXAMPLE: variables.env_example()}


def written() -> Iterator[Path]:
    """The files of the reference that exist, by path below the repository's root."""
    found = (ROOT / INDEX, ROOT / ENV_EXAMPLE, *sorted((ROOT / FOLDER).glob("*")))
    return (one.relative_to(ROOT) for one in found if one.is_file())


def _index() -> str:
    parts = []
    for title, topic in _TOPICS.items():
        rows = ((f"[{one.name}](reference/{one.name})", one.content) for one in topic)
        parts.append(section(title, table(("page", "content"), rows)))
    return page(
        "Reference",
        "Every command, setting, environment variable, exit status, metric and event. `make reference` writes these pages and "
        "[`.env.example`](../.env.example) from the code, and a test compares them.",
        *parts,
    )


def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")
