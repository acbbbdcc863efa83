"""The stack as plain data: settings, catalogue, release, outputs. It imports no Pulumi and no cloud SDK; everything else may import it."""
