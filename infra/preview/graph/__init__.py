"""The stack without a cloud: every resource as a table, as JSON, and the architecture as a picture."""
