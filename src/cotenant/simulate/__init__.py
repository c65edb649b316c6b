"""Replays recorded load against simulated replicas, to judge a decision before it meets a cluster."""
