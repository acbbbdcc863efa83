"""Our own images: plan, engine, SBOM, push."""
