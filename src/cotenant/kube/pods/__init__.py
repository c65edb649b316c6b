"""Reads what a pod asks for, holds and needs."""
