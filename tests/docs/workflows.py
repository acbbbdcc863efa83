"""Reads the files of a user's own CI: workflows, the pipeline for GitLab, and the shell scripts in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
GITLAB = ROOT / ".gitlab-ci.yml"
GITLAB_KEYWORDS = {"stages", "workflow", "default"}

_EXPANSION = re.compile(r"\$\(\(.*?\)\)|\$\{[^}]*\}|\$\w+")
_BETWEEN_COMMANDS = re.compile(r"\|\|?|&&|;|\d*>&?\d*|<")
_SHELL_WORDS = re.compile(r"^(?:if|then|else|do|!)\s+")

Mapped = Mapping[str, Any]


class Job(NamedTuple):
    """A job of a workflow.

    Attributes:
        workflow: name of the file.
        name: key of the job.
        content: what the file says about it; every scalar is text.
    """

    workflow: str
    name: str
    content: Mapped

    @property
    def title(self) -> str:
        """File and job."""
        return f"{self.workflow} {self.name}"

    @property
    def steps(self) -> Sequence[Mapped]:
        """Its steps; a job that calls another workflow has none."""
        steps: Sequence[Mapped] = self.content.get("steps", [])
        return steps

    @property
    def scripts(self) -> list[str]:
        """Its shell scripts."""
        return [step["run"] for step in self.steps if "run" in step]

    @property
    def runs_the_project(self) -> bool:
        """Whether it runs code of the checkout."""
        return any(re.search(r"^\s*(?:make |\.venv/|\.ci/)", script, re.MULTILINE) for script in self.scripts)

    def uses(self, action: str) -> list[Mapped]:
        """Its steps that use an action, in any version."""
        return [step for step in self.steps if step.get("uses", "").startswith(f"{action}@")]


def load(file: Path) -> dict[str, Any]:
    """A file, with every scalar as text, so that YAML 1.1 does not take `on` for a boolean."""
    content: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 - a safe one
    return content


def jobs() -> list[Job]:
    """The jobs of all workflows."""
    return [Job(file.name, name, content) for file in WORKFLOWS for name, content in load(file)["jobs"].items()]


def pipeline_jobs() -> dict[str, Mapped]:
    """The jobs of the pipeline for GitLab, without templates."""
    return {
        name: content
        for name, content in load(GITLAB).items()
        if name not in GITLAB_KEYWORDS and not name.startswith(".")
    }


def commands_of(script: str) -> Iterator[str]:
    """The simple commands of a script, one a line, without redirections; `x` stands for what the shell puts in."""
    for line in script.replace("\\\n", " ").splitlines():
        text = _EXPANSION.sub("x", line.partition(" # ")[0])
        for part in _BETWEEN_COMMANDS.split(text):
            yield " ".join(_SHELL_WORDS.sub("", part.strip()).split())


def make_commands_of(scripts: Iterator[str]) -> list[str]:
    """The make commands of scripts, each once."""
    return sorted({one for script in scripts for one in commands_of(script) if one.startswith("make ")})
