"""A trial: a run like any other, driven by an actor of Ray Tune over ranks that trials share one after the other."""
