"""Our own container images: build plan, build engine, SBOM and ECR."""
