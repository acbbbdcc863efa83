"""The commands of the documents: where they stand, what they need, and what runs them."""
