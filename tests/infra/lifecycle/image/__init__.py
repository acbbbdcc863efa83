"""Our own images: what they are built of, by which program, and what is said of them."""
