"""What the commands of a document need that a test machine, or a fresh clone, does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Reason(NamedTuple):
    """Something that commands need.

    Attributes:
        text: what it is, for readers of the site.
    """

    text: str


REASONS: Mapping[str, Reason] = {
    "account": Reason("an AWS account"),
    "cluster": Reason("the cluster of an environment, or the sandbox"),
    "machines": Reason("machines in EC2 or of yours, and the Ray cluster on them"),
    "docker": Reason("Docker"),
    "gpu": Reason("a GPU on this machine"),
    "root": Reason("root on Linux"),
    "files": Reason("files or a server of yours: data, settings, code"),
    "run": Reason("a run or search of yours"),
    "values": Reason("values of yours for words in capitals and ellipses"),
    "minutes": Reason("minutes to hours"),
    "wheel": Reason("an environment for the platform's wheel"),
    "release": Reason("a release with that tag"),
}
"""Everything that a mark may name."""
