"""Binds pods to nodes and GPUs, and feeds the ledger from the API server."""
