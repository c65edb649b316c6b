"""Reports who holds what on which GPU."""
