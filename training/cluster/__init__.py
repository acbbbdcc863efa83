"""Runs on a cluster of the stack: submitted as RayJobs, followed, listed, stopped and resumed.

`state`, `waiting` and `queue_position` are policy: pure functions of what the API server said. `watch`, `driver_log` and
`follow` are mechanism. Only `connection` imports the Kubernetes client, and only when a command needs a cluster.
"""
