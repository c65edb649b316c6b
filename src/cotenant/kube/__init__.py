"""The cluster: talking to its API server, and what is built on that."""
