"""Judges the answers of the API server to what must not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.cluster.conformance.check import Finding, judged, unknown
from training.conformance.facts import NetworkFacts

_SHOWN = 240


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The API server's answer to an object that was sent as a dry run.

    Attributes:
        refusal: why it was refused; empty if it was admitted.
    """

    refusal: str

    @property
    def said(self) -> str:
        """The answer in words."""
        return self.refusal[:_SHOWN] if self.refusal else "admitted"


def admitted(answer: Answer) -> Finding:
    """An object that obeys the rules was admitted; otherwise the refusals of others prove nothing."""
    return judged(holds=not answer.refusal, expected="admitted", found=answer.said)


def refused(answer: Answer, *, by: str, marks: Sequence[str]) -> Finding:
    """An object was refused by the rule that is meant, and not by something else, such as RBAC.

    Args:
        answer: to the object.
        by: name of the rule in words.
        marks: texts that a refusal by this rule has.
    """
    return judged(holds=all(one in answer.refusal for one in marks), expected=f"refused by {by}", found=answer.said)


def network(facts: NetworkFacts) -> Finding:
    """The server that is allowed was reached, without which the other proves nothing; and that other was not."""
    expected = f"a connection to {facts.allowed}, and none to {facts.denied}"
    if not facts.denied_is_known:
        return unknown(f"{facts.denied} has no address, so that it is no policy that denies it", expected=expected)
    if facts.allowed_error:
        found = f"{facts.allowed} is not reached: {facts.allowed_error}"
        return judged(holds=False, expected=expected, found=found)
    answer = facts.denied_error or "connected"
    return judged(holds=bool(facts.denied_error), expected=expected, found=f"{facts.denied}: {answer}")


def own_namespace_only(*, own: bool, foreign: bool, team: str, other: str) -> Finding:
    """A team's members may submit to its namespace and not to another's."""
    words = {True: "may", False: "may not"}
    return judged(
        holds=own and not foreign,
        expected=f"members of {team} may submit to {team}, and may not submit to {other}",
        found=f"members of {team} {words[own]} submit to {team}, and {words[foreign]} submit to {other}",
    )
