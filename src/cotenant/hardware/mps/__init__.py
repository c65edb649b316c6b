"""Runs NVIDIA's Multi-Process Service (MPS): its control daemon, and what is asked of it."""
