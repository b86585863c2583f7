"""A page that shows the runs in a folder: their curves, their lineages, and their play."""
