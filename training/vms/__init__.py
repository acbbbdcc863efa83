"""Ray clusters of virtual machines, without Kubernetes: their cluster-launcher files, and jobs on them.

Pure functions render the files (`aws`, `own`, `anyscale`); Ray's cluster launcher (`ray up`) makes the machines; jobs go through the job
server of the head.
"""
