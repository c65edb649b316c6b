"""Evicts pods that hold more GPU memory than their limit, where the policy says so."""
