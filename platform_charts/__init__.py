"""The Kubernetes side of the platform: charts, objects, job templates and the programs of its images."""
