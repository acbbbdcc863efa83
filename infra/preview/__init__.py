"""The resource graph without an engine or an AWS account: recordings, tables and pictures."""
