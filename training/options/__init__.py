"""The options of the trainer's commands: one dataclass per command, composed of shared ones.

* `given`, `cluster`: the shared ones: what a command works on, and the cluster.
* `training`, `runs`, `scripts`, `sessions`, `services`: those of the commands.
"""
