"""What rank 0 and its evaluator tell each other, as lines of JSON over a socket. Read without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The evaluator's answer to a step.

    Attributes:
        step: whose checkpoint was evaluated.
        metrics: of the objective, by name; floats arrive bit for bit.
        samples: of the split.
        seconds: wall time of the evaluation, without reading the checkpoint.
        problem: why the checkpoint could not be evaluated; empty if it was.
    """

    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    seconds: float = 0.0
    problem: str = ""

    def encode(self) -> bytes:
        """The answer as a line."""
        return encode(asdict(self))

    @classmethod
    def decode(cls, line: bytes) -> Answer:
        """The answer that `encode` wrote."""
        return cls(**json.loads(line))


def encode(record: Mapping[str, Any]) -> bytes:
    """A JSON object as a line."""
    return json.dumps(record).encode() + b"\n"
