"""Reads and writes what a node reports about its GPUs."""
