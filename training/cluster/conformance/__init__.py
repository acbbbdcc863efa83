"""The conformance suite: does a live cluster do what its release promises?

`probes` reads facts from the cluster, `judges` says what they mean and reads nothing, `results` shows it. `training.conformance` is
the program of the suite's job.
"""
