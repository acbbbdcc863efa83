"""The commands, grouped by their imports; `infra.lifecycle.cli` imports a command's module when it runs."""
