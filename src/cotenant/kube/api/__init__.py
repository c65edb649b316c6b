"""Talks to the API server: client, connections, watches and caches."""
