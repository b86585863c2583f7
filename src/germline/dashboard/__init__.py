"""A page that shows the runs in a folder: their curves, their lineages, and their play.

The modules in reading order:

    server       the command's own part: where it is served
    guard        who may ask
    app          the page and the calls by which it learns of runs
    answers/     what is told of all runs, of one, of an individual; and the schema of it
    library      the runs of a folder, found and confined to it
    evaluations  what was read of a run's evaluations, kept as columns
    films/       individuals at play, in processes of their own, and films while they are made
    assets       the files of the page
    page/        what the browser runs: main.js, then a module for each view (runs, run, population,
                 lineage, individual, gallery, file), then what these share
    export       a run as one file: the page, and in it what it would ask for
"""
