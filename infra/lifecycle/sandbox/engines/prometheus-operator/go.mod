// The Prometheus operator's CRDs, of the version in the release's kube-prometheus-stack chart. No program of it is built,
// so no package is imported, and `go mod tidy` would remove the requirement.
module ray-train-platform/engines/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.93.1
