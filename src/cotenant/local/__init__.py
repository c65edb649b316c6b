"""One machine without Kubernetes: its ledger, the line of those who wait, and the commands it runs."""
