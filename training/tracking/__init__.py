"""MLflow tracking off the critical path: a follower process reads the run's event log and sends it to MLflow.

    rank 0, driver ──> events.jsonl ──> follower ──> MLflow
                        (the spool)     tracking.json: the cursor

Nothing is lost while the server is unavailable, because the log keeps every event. The cursor in tracking.json advances after MLflow has
accepted a batch, and sending a batch twice changes nothing, so the follower may be killed at any time.

* `locations`, `state`, `payload`, `process`: import no MLflow, for the driver and the command line.
* `thinning`, `batch`: which points are sent, so that a long run does not fill the database.
* `follow`: the follower's loop. `sync`: the same for finished runs. `ui`: MLflow's web UI.
* `client`, `delivery`, `checkpoint_models`, `model`: the only modules that import MLflow. No rank and no driver imports them.
* `registration`: runs `model`, the only module that imports torch, in a process of its own.
* `system`: system metrics, spooled like the events.
"""
