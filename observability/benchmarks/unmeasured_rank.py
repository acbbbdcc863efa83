"""The platform's rank without the metrics of its steps: what they cost is the difference.

The arguments are those of `training.launch.rank`. No setting turns the metrics off, so they are taken out here: the events of a step in
log and exporter, the usage of the ranks, and the mark between the backward pass and the wait for the peers' gradients. What the loop
itself needs stays: the sums of a window, which carry the votes to stop, and the clock's other marks.
"""

from __future__ import annotations

import sys

from training import step
from training.callbacks.callback import Callback
from training.callbacks.event_log import EventLog
from training.callbacks.usage import Usage
from training.launch.rank import main

if __name__ == "__main__":
    for measured in (EventLog, Usage):
        measured.on_window = Callback.on_window  # type: ignore[method-assign]
    setattr(step, "when_gradients_are_computed", lambda *_: None)  # noqa: B010 - it is not part of that module's interface
    main(sys.argv[1:])
