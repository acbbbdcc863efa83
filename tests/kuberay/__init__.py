"""KubeRay's operator, imitated: the pods that it makes of a RayJob or RayCluster."""
