"""The images of a sandbox's real nodes: a registry, and our own images in it, built by the commands of `make image`."""
