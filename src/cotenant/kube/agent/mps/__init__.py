"""Runs MPS on the node, for containers that ask for a share of compute."""
