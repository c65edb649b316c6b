"""Composes `cotenant server`."""
