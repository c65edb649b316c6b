"""Serves the kubelet's device plugin and pod-resources APIs."""
