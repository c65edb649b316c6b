"""Explains why a pod waits, runs or was refused."""
