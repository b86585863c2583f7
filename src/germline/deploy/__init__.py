"""Files that bring a run to clusters. A target is a module with `files`, and templates.

What all targets are made of:

    plan        the spec that is brought there, and what its image holds
    render      templates, in which values are filled in
    write       the files on disk

The targets:

    docker      one image for master and workers
    compose     all services on one machine
    kubernetes  a master and autoscaled workers, by gRPC or RabbitMQ
    kuberay     a Ray cluster made for the run
    slurm       jobs of a Slurm cluster
    aws         a master on demand and spot instances
    templates/  the text of their files

What is called there, by the scripts among these files:

    node        a port and copies of a run, on a node of Slurm
    wait        until a broker answers, before a master begins
"""
