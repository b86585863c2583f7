"""A spec becomes a lineage: what to run, the loop that runs it, and the file that keeps it."""
