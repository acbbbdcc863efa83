"""The commands, by what they have to import; `infra.lifecycle.cli` imports the one that is asked for."""
