"""Volumes: how long it takes to make and to attach one, and how fast bytes go, beside a loop mount on the host."""
