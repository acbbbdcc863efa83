"""The requests for profiles as rank 0 sees them. Each is met once, whatever happens to the run meanwhile.

The file of a request to a job stays where it is over restarts, and a profile that ends its ranks, e.g. for lack of memory, must not end
those that follow them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from infra.spec.cluster_names import PROFILE_REQUEST, REQUESTS_VARIABLE
from observability.profiling.window import ProfileFolder
from observability.runlog import Emit, ProfileAnswered
from training.profiling.answers import Answers
from training.profiling.request import ProfileRequest, RequestFile, read_request


class Asked(NamedTuple):
    """A request that came to these ranks; `is_remote` if it is one to a job."""

    request: ProfileRequest
    is_remote: bool


class RequestInbox:
    """Requests of a run. Only rank 0 has one."""

    def __init__(self, run_directory: Path, *, emit: Emit, variables: Mapping[str, str] = os.environ) -> None:
        """Args: `emit` logs the answers; `variables` name the folder with the requests to a job."""
        mounted = variables.get(REQUESTS_VARIABLE)
        self._run_directory = run_directory
        self._emit = emit
        self._answers = Answers(run_directory)
        self._local = RequestFile(run_directory)
        self._mounted = None if mounted is None else Path(mounted, PROFILE_REQUEST)
        self._seen: set[str] = set()
        self._waiting: Asked | None = None

    def waiting(self) -> ProfileRequest | None:
        """The request that no ranks have taken yet; None without one."""
        self._waiting = self._next()
        return None if self._waiting is None else self._waiting.request

    def take(self) -> Asked:
        """Take the request that was waiting: nobody meets it again. `accept` or `refuse` answers it."""
        assert self._waiting is not None, "the ranks were asked"
        if self._waiting.is_remote:
            self._seen.add(self._waiting.request.id)
        else:
            self._local.withdraw()
        return self._waiting

    def accept(self, asked: Asked, *, step: int, text: str) -> None:
        """Answer that the profile is recorded, from a step on."""
        self._answer(asked, "recording", text, step=step)

    def refuse(self, asked: Asked, reason: str) -> None:
        """Answer that there is no profile, and why."""
        self._answer(asked, "refused", reason)

    def _answer(self, asked: Asked, state: str, text: str, *, step: int = 0) -> None:
        answer = ProfileAnswered(request=asked.request.id, state=state, text=text, step=step, is_remote=asked.is_remote)
        if asked.is_remote:
            self._answers.write(answer)
        self._emit(answer)

    def _next(self) -> Asked | None:
        local = self._local.read()
        if local is not None:
            return Asked(local, is_remote=False)
        remote = None if self._mounted is None else read_request(self._mounted)
        if remote is None or remote.id in self._seen:
            return None
        asked = Asked(remote, is_remote=True)
        earlier = self._answers.newest(remote.id)
        if earlier is None:
            return asked
        self._seen.add(remote.id)
        if earlier.state == "recording":
            self._settle(asked, earlier)
        return None

    def _settle(self, asked: Asked, recording: ProfileAnswered) -> None:
        """Answer a request that earlier ranks took, and no driver has answered since."""
        if ProfileFolder.of_step(self._run_directory, recording.step).is_complete():
            self.accept(asked, step=recording.step, text=recording.text)  # which a new driver then judges
        else:
            self.refuse(asked, "the ranks were restarted while they recorded it; ask again")
