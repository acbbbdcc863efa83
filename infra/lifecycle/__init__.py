"""What a platform engineer does with an environment: look at it, price it, check it, bring it up."""
