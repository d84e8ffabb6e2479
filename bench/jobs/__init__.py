"""Jobs: how many, how soon, and what becomes of what they write, beside Slurm on the same machine."""
