"""Every kind of resource that bills or blocks a teardown, one module per area."""
