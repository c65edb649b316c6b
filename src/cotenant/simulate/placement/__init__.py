"""Replays pods against the ledger and the policy of a cluster, without Kubernetes."""
