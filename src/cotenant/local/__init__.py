"""Shares the GPUs of one machine without Kubernetes: its ledger, its line and the commands it runs."""
