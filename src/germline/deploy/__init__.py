"""Files that bring a run to clusters.

render      templates, in which values are filled in
plan        the spec that is brought there, and what its image holds
docker      one image for master and workers
compose     all services on one machine
kubernetes  a master and autoscaled workers, by gRPC or RabbitMQ
kuberay     a Ray cluster made for the run
slurm       jobs of a Slurm cluster
aws         a master on demand and spot instances
write       all of it on disk
wait        what a master does first where there is a broker
"""
