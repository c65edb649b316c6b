"""Measurements. Each module prints what it measured beside what is promised; none of them is a test."""
