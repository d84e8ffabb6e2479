"""Instances: the time until a login and the throughput, beside common alternatives."""
