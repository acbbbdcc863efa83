"""Look-ups of the release manifest: unresolved values, newer versions, and where charts, images and packages publish them."""
