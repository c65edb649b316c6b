"""A real Kubernetes on one machine, in namespaces of its own: see tests/cluster/README.md."""
