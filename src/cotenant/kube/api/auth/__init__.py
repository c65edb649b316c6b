"""Finds an API server and proves who we are: kubeconfig, in-cluster, exec plugins, TLS."""
