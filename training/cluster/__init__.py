"""Runs on a cluster of the stack: submitted as RayJobs, followed, listed, stopped and resumed.

`state`, `waiting` and `queue_position` are policy: pure functions of the API server's objects. `watch`, `driver_log` and
`follow` are mechanism. Only `connection` imports the Kubernetes client, and only when a command needs a cluster.
"""
