"""Job templates: a request and a stack's outputs become the objects a cluster takes; pure functions, no Pulumi."""
