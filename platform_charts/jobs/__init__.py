"""Job templates: a request and a stack's outputs become Kubernetes objects; pure functions, no Pulumi."""
