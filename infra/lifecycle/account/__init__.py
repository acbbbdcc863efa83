"""The AWS account that commands work in: its clients, its caller, and what EC2 lets it start."""
