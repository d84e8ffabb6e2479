"""The benchmark: Tarn beside its baselines in one run, on one host. Start reading at `__main__.py`.

Client and servers share the host's cores, so the figures are for the pair; processor time for each request is the
figure that a busy host disturbs least.
"""
