"""Cotenant shares GPUs the way CPU and memory are shared."""

__version__ = "0.1.0"
