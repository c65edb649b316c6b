"""Reads demands and writes grants in our own resource names and in those of other GPU sharing systems."""
