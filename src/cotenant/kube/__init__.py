"""Shares GPUs in a Kubernetes cluster: webhook, extender, line, agent, and commands for people."""
