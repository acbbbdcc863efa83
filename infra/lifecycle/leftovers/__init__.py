"""What a stack has left in AWS: found service by service, without Pulumi's state, and removed in a safe order."""
