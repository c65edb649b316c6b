"""Cotenant shares GPUs the way CPU and memory are shared."""

__version__ = "0.1.0"
"""The only place of the version: package, chart and image tag follow (RELEASING.md)."""
