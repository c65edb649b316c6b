"""Serves the mutating webhook that the API server calls for every GPU pod before it stores it."""
