"""Hosts, machines that work for a master elsewhere: what gRPC, Celery and Ray share.

    messages     what a master and its hosts say to each other
    connection   a host's end, as every engine brings one
    relay        the host's side: it keeps the processes of its machine busy
    local        a host beside the master, started by it
    roster       who has joined, and what each of them holds
    admission    who may join
    queue        which batches wait, and for whom
    coordinator  the master's side: hosts join, get batches, answer and go

A batch goes from `coordinator` by the engine's connection to `relay`, which gives it to a process
and sends back what that answers. Celery has a coordinator of its own, as its hosts help themselves.
"""
