"""Finds what advice about GPU memory needs to know of a cluster: Prometheus, workloads, limits and GPUs."""
