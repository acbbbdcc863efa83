"""Our own container images: what goes into them, who builds them, where they are pushed."""
