"""A spec becomes a lineage: what to run, the loop that runs it, and the file that keeps it.

The modules in reading order:

    stop          when a run is over
    toml          TOML files, read and written
    spec          what a spec may say, and what becomes of it
    checks        what of it does not go together
    difference    whether two are of the same run
    engines       the engine that it names

    database      the file of a store: its tables, its versions, its lock
    records       requests and results as rows, and back
    connection    an open store: queries, transactions, damage
    individuals   who lived
    reader        what they did, what it came to, and the digest
    store         begin, open and write a store

    machine       what a session works with
    replay        what a store tells an algorithm again
    session       one process at work on a run
    synchronous   phase after phase
    asynchronous  every arrival at once
    loop          begin a run, and evolve it

    recall        an individual, to be played
    fork          another run from a generation on
    handover      what stays behind when a run is handed on
    prune         a small copy
    score         fresh episodes

    history       the best, and what each gene brought
    columns       many evaluations as arrays
    cost          what a run costs, and will
    outline       what a run is about, and where it stands
"""
