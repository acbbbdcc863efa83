"""Interactive sessions: a Ray cluster that a team works on, and that ends by itself when nobody does.

`idle` and `cost` are policy, without Ray; `activity` asks Ray and the nodes; `notebook` starts and asks JupyterLab; `session` is the
program that runs as the session's job.
"""
