"""Keeps the slots of a node's containers."""
