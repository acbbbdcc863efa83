"""MLflow, off the hot path: a process of its own follows the run's log and delivers it.

    rank 0, driver ──> events.jsonl ──> follower ──> MLflow
                        (the spool)     tracking.json: how much of it was delivered

The log is the spool: while the server is away nothing is lost, because nothing was ever taken out of it. The cursor in tracking.json
moves after a batch was accepted, and a batch that is sent twice changes nothing, so that the follower may die at any moment.

* `locations`, `state`, `payload`, `process`: light; for the driver and the command line.
* `follow`: the follower's loop; `sync`: the same for runs that are over; `ui`: MLflow's pages.
* `client`, `delivery`, `model`: the only modules that import MLflow (`model` torch, too). No rank and no driver imports them.
* `system`: samples of the machine, spooled like the events.
"""
