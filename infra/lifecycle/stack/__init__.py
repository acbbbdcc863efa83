"""The environment's Pulumi stack: its state, what an update registers, and how `pulumi` runs."""
