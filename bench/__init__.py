"""Measures performance. Each module prints what it measured beside what is promised; they are not tests."""
