"""Describes a scaler for a cluster and one machine alike: its specification, and a sample of its signals."""
