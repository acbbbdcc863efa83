"""The AWS side of the stack: one Pulumi component per file, and the program that creates them in order."""
