"""Issues, renews and serves TLS certificates. The only package that imports `cryptography`."""
