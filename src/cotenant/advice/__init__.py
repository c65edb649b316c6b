"""Gathers what containers used of their GPUs, from files and from Prometheus, and shows the advice made of
it.
"""
