"""Changes the number of workers of elastic jobs: they grow into idle quota of their team, and return it when a job waits for it.

Kueue counts an elastic job by the number of pods in its spec. More of them are a new Workload slice, which replaces the admitted one
once there is quota; fewer release quota at once. KubeRay never looks at a submitted job's spec again, and the pods are those of its
RayCluster. So this program keeps the two in step: what Kueue has counted is never less than what runs.
"""
