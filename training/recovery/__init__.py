"""After a failure: its cause, the budget of the cause, and the decision to restart or to stop. `training.attempts` carries it out."""
