"""Machines: how long until one can log in, and how fast bytes go through, beside what people use otherwise."""
