"""The AWS side of the stack: settings, catalogue, release manifest and the Pulumi components."""
