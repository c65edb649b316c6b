"""Talks to the Kubernetes API server: client, connections, watches, caches and leader election."""
