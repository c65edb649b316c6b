"""Surveys the GPUs of a node and judges their health."""
