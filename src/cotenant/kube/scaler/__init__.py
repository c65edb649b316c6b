"""Sizes workloads from their backlog, and releases GPUs of those that idle: the leader's part."""
