"""The stack: settings and release as plain data, the AWS components, previews, policy, and the commands of its life."""
