"""Runs on a cluster of the stack: submitted as RayJobs, followed, listed, stopped and resumed.

`state`, `waiting`, `position` and `log_cursor` are policy: pure functions of what the API server said. `api`, `connection`
and `follow` are mechanism. Only `connection` imports the Kubernetes client, and only when a cluster is asked.
"""
