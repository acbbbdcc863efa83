"""Updates that replace nodes: which groups roll, which jobs run on them, and queues that are held meanwhile."""
