"""Sizes workloads of one machine from their backlog: `cotenant up`."""
