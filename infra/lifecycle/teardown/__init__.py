"""`make down`: empties the cluster in order, destroys the stack, and looks for what is left."""
