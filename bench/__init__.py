"""Measurements. Each module prints what it measured and says which figures it promises; none of them is a test."""
