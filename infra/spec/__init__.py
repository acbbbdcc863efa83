"""The stack as plain data: settings, catalogue, release, outputs. Imports neither Pulumi nor a cloud SDK; any package may import it."""
