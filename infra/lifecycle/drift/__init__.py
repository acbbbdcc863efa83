"""`make drift`: how the account and the cluster differ from what the stack made."""
