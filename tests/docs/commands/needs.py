"""What a command of a document needs that a test machine, or a fresh clone, does not have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Words(NamedTuple):
    """A command in words, with those before it in its document that need nothing.

    Attributes:
        program: the program; of a module that Python runs, the module.
        target: the target of make, or the subcommand of Jupyter; empty for other programs.
        variables: the variables that make gets.
        arguments: everything behind the program.
        earlier: the commands before it that need nothing.
    """

    program: str
    target: str
    variables: dict[str, str]
    arguments: list[str]
    earlier: Sequence[Words]

    def has(self, *names: str) -> bool:
        """Whether make gets one of these variables."""
        return not {*names}.isdisjoint(self.variables)


class Reason(NamedTuple):
    """Something that commands need.

    Attributes:
        text: what it is, for readers of the site.
        holds_for: whether a command needs it.
    """

    text: str
    holds_for: Callable[[Words], bool]


_ACCOUNT = {
    "capacity",
    "cluster-test",
    "down",
    "drift",
    "leaks",
    "preview",
    "promote",
    "reap",
    "state-bucket",
    "up",
    "upgrade",
}
_CLUSTER = {
    "backup",
    "cluster",
    "conformance",
    "data-sync",
    "forward",
    "hold",
    "open",
    "release-queues",
    "restore-drill",
    "schedules",
    "shell",
    "tunnel",
    "unschedule",
}
_ON_CLUSTER = {"jobs", "logs", "notebook", "postmortem", "profile", "resize", "resume", "run", "stop", "train", "tune"}
_OF_RUN = {
    "logs",
    "monitor",
    "postmortem",
    "resize",
    "resume",
    "stop",
    "sync",
    "tune-notebook",
    "tune-report",
    "tune-status",
    "verify",
}
_MAKES_RUN = {"profile", "run", "train"}
_MINUTES = {
    "bench",
    "bench-faults",
    "bench-fleet",
    "bench-gate",
    "bench-scaling",
    "engines",
    "faults",
    "lint",
    "test",
    "test-cluster",
}
_CAPITALS = re.compile(r"(?<![\w$-])[A-Z][A-Z_]+(?![\w=])")
_EXAMPLES = re.compile(r"(^|=)(/data|/nfs|/shared|s3://|my\.yaml|ds_config\.json|\.\./mine|results|http://)\b")


def parse(text: str, earlier: Sequence[Words] = ()) -> Words:
    """A command in words; of a pipeline, the first one, and of `timeout`, the one that it limits."""
    words = shlex.split(text)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    if words[:1] == ["timeout"] and "make" in words:
        words = words[words.index("make") :]
    program, *arguments = words or [""]
    if program.endswith("python") and arguments[:1] == ["-m"]:
        program, *arguments = arguments[1:]
    if program != "make":
        subcommand = "".join(arguments[:1]) if program.endswith("/jupyter") else ""
        return Words(program, subcommand, {}, arguments, earlier)
    pairs = [word.partition("=")[::2] for word in arguments if "=" in word]
    targets = [word for word in arguments if "=" not in word and word != "…"]
    return Words(program, targets[0], dict(pairs), arguments, earlier)


def is_example(value: str) -> bool:
    """Whether a value names a file, a folder or a server that the documents have as example."""
    return _EXAMPLES.search(value) is not None


def _account(command: Words) -> bool:
    if command.target in {"image", "outputs"}:
        return command.has("ENV") and not command.has("RECORDED")
    if command.target in {"anyscale", "ray-cluster"}:
        return command.has("ENV") and not command.has("OUTPUTS")
    return command.target in _ACCOUNT or command.program in {"aws", "gh", "pulumi"}


def _cluster(command: Words) -> bool:
    if command.target == "job":
        return not command.has("OUTPUTS")
    if command.target == "cost":
        return command.has("JOB", "TEAM")
    if _machines(command):
        return False
    asked = command.target in _CLUSTER or (command.target in _ON_CLUSTER and command.has("ENV", "TEAM", "JOB"))
    return asked or "kubectl" in command.arguments or command.program in {"kubectl", "promtool", "ray", "training"}


def _machines(command: Words) -> bool:
    return command.has("RAY") or command.program == ".venv/bin/ray"


def _gpu(command: Words) -> bool:
    is_here = not command.has("ENV", "TEAM", "RAY")
    return command.target == "bench-gpu" or (is_here and command.variables.get("GPU", "0") != "0")


def _root(command: Words) -> bool:
    is_sandbox = command.target == "sandbox" and command.has("REAL")
    return (
        is_sandbox
        or command.program == "apt-get"
        or command.target == "test-cluster"
        or "communication" in str(command)
    )


def _files(command: Words) -> bool:
    # RUNS is a folder of the machines, which the file only names.
    words = [word for word in command.arguments if command.target != "ray-cluster" or not word.startswith("RUNS=")]
    values = [part for word in words for part in word.partition("=")[2].split()]
    if any(is_example(value) for value in values):
        return True
    made = {f"../{one.variables['NAME']}" for one in command.earlier if one.target == "new"}
    used = {command.variables.get("CODE"), command.variables.get("FROM")} & {"../my-project"}
    return not used <= made


def _run(command: Words) -> bool:
    name = command.variables.get("NAME")
    uses_run = command.target in _OF_RUN or (command.target in {"cost", "profile"} and name is not None)
    if not uses_run or _cluster(command) or _machines(command):
        return False
    makers = {"tune"} if command.target.startswith("tune-") else _MAKES_RUN
    made = [one.variables.get("NAME") for one in command.earlier if one.target in makers]
    return name not in made if name else not made


def _values(command: Words) -> bool:
    return any("…" in word or _CAPITALS.search(word.partition("=")[2] or word) for word in command.arguments)


def _minutes(command: Words) -> bool:
    is_long_training = command.variables.get("DATASET") == "python_reference"
    return (
        is_long_training
        or command.program.startswith(".ci/")
        or (command.target in _MINUTES and not command.has("CODE"))
    )


def _release(command: Words) -> bool:
    return any(re.fullmatch(r"v\d+\.\d+\.\d+", word) for word in command.arguments)


REASONS = {
    "account": Reason("an AWS account", _account),
    "cluster": Reason("the cluster of an environment, or the sandbox", _cluster),
    "machines": Reason("machines in EC2 or of yours, and the Ray cluster on them", _machines),
    "docker": Reason("Docker", lambda command: command.program == "docker"),
    "gpu": Reason("a GPU on this machine", _gpu),
    "root": Reason("root on Linux", _root),
    "files": Reason("files or a server of yours: data, settings, code", _files),
    "run": Reason("a run or search of yours", _run),
    "values": Reason("values of yours for words in capitals and ellipses", _values),
    "minutes": Reason("minutes to hours", _minutes),
    "wheel": Reason(
        "an environment for the platform's wheel", lambda command: command.program in {"eval", "pip", "rtp"}
    ),
    "release": Reason("a release with that tag", _release),
}
"""Everything that a mark may name."""


def needs(command: Words) -> frozenset[str]:
    """The reasons that hold for a command."""
    return frozenset(name for name, reason in REASONS.items() if reason.holds_for(command))
