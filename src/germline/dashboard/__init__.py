"""A page that shows the runs in a folder: their curves, their lineages, and their play.

The modules in reading order:

    library, index           the runs of a folder, and what was read of each
    answers                  what is told, as plain values: the schema of the interface
    views, lives, table      what is told of a run, of individuals, of all runs
    requests, player         individuals at play, in processes of their own
    booth, reels, films      who looks after these, and films while they are made
    assets, guard, app       the page and the calls, and who may ask
    server                   the command's own part: where it is served
    export                   a run as one file
    page/                    what the browser runs: main.js, then a module for each view
"""
