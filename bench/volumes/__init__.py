"""Volumes: the time to create and attach one, and the throughput, beside a loop mount on the host."""
