"""What the page is told.

schema            every answer as a plain value: the schema of the interface
about_run         a run: its line in the table, its curves, its workers, a population
about_individual  a lineage and what each gene brought it, a genome, the best
about_all_runs    the table of runs, and the gallery
"""
