"""Issues, renews and serves certificates."""
