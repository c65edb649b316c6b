"""Finds an API server and authenticates to it: kubeconfig, in-cluster, exec plugins, proxies, TLS."""
