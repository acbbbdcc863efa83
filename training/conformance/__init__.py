"""The conformance suite's program inside a job: it measures what only a pod can see, and judges nothing.

`training.cluster.conformance` submits it, checks the cluster from outside, and judges.
"""
