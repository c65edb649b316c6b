"""Demonstrates GPU sharing with real processes on simulated GPUs, and checks it by what the driver counts."""
