"""Measures what containers hold on the node's GPUs, with a grant or without."""
