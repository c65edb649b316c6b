"""Makes limits real on a GPU: one module for each enforcer."""
