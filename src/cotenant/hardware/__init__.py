"""Reads GPUs through NVML, keeps slots, enforces limits, and simulates GPUs where there are none."""
