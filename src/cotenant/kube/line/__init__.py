"""Keeps the line of waiting pods and evicts for those of higher priority."""
