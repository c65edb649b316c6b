"""Declares, loads and documents settings."""
