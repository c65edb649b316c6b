"""Serves the kubelet's device plugin API, and asks its pod-resources API which container holds which slot."""
