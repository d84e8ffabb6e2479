"""Jobs: throughput, latency and output, beside Slurm on the same host."""
