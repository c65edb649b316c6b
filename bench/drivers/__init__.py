"""Compares what real CUDA drivers and real CUDA programs do with and without the shim."""
