#!/bin/bash
# Runs of Germline on a Slurm cluster, one per task of the array. Submit it with: sbatch job.sh
# A task that comes near its time limit is stopped, queued again, and goes on where it was.
#SBATCH --job-name=germline-frostbite-laptop
#SBATCH --array=0-0
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output="task-%a.log"

# Signals come first: until they are dealt with, they would end the job.
stopping="" # why, once it is to stop
trap 'stopping=${stopping:-limit}' USR1
trap 'stopping=${stopping:-slurm}' TERM

# Nothing has to be set up.

set -u
python=python3
folder="$SLURM_SUBMIT_DIR"
insecure=
runs=(
    frostbite-seed-1
)
task=${SLURM_ARRAY_TASK_ID:-0}
name=${runs[$task]}
kept=$folder/$name    # on the file system that all nodes share
shared=$folder/.$name # secrets of this session
restarts=$((${SLURM_RESTART_COUNT:-0} + ${GERMLINE_RESTARTS:-0}))
program=("$python" -P -m germline)
helper=("$python" -P -m germline.deploy.node)

say() { echo "$(date '+%F %T') $name: $*"; }
refuse() {
    say "$*"
    exit 2
}
is_there() { kill -0 "$1" 2>/dev/null; }
ends() { # whether a process does within so many seconds
    for ((i = 0; i < 5 * $2; i++)); do
        is_there "$1" || return 0
        sleep 0.2
    done
    return 1
}

say "session $((restarts + 1)), on $SLURM_JOB_NODELIST"
scratch=$(mktemp -d "${TMPDIR:-/tmp}"/germline-XXXXXXXX) || refuse "no folder can be made on this node; see above"
unkept="" # if the whole run is in scratch alone
trap 'rm -rf "$shared"; [ -n "$unkept" ] || rm -rf "$scratch"' EXIT
(umask 077 && rm -rf "$shared" && mkdir -p "$shared" && head -c 32 /dev/urandom | base64 >"$shared/token") ||
    refuse "$folder: cannot be written to"

# The master is on this node; who is to reach it uses the name that Slurm does.
host=127.0.0.1 listen=127.0.0.1
master_options=(--token-file "$shared/token")
worker_options=(--token-file "$shared/token" --drain 0)
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    host=$(scontrol show node "$SLURMD_NODENAME" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
    host=${host:-$SLURMD_NODENAME} listen=0.0.0.0
    if [ -n "$insecure" ]; then
        master_options+=(--insecure)
        worker_options+=(--insecure)
    else
        [[ $host =~ ^[0-9.]+$ ]] && kind=IP || kind=DNS
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
            -keyout "$scratch/key.pem" -out "$shared/certificate.pem" \
            -subj /CN=germline -addext "subjectAltName=$kind:$host" 2>"$scratch/openssl" ||
            refuse "openssl makes no certificate here ($(tail -n 1 "$scratch/openssl")); add it, or use --insecure"
        master_options+=(--certificate "$shared/certificate.pem" --key "$scratch/key.pem")
        worker_options+=(--authority "$shared/certificate.pem")
    fi
fi
port=$("${helper[@]}" port) || refuse "germline is not found by $python on this node"

if [ -e "$kept/run.db" ]; then
    # The spec may have other stop rules since.
    if ! cp -R "$kept" "$scratch/$name" || ! cp "$folder/specs/$name.toml" "$scratch/$name/spec.toml"; then
        refuse "$kept: cannot be read"
    fi
    begin=(resume "$scratch/$name")
else
    begin=(train "$folder/specs/$name.toml" --out "$scratch/$name")
fi

# No `wait` here: bash may lose the code of a process that ends while a signal comes in.
code=143
if [ -z "$stopping" ]; then
    ( # what the master says of its folder is true of the copy that stays
        trap : TERM # is for the master
        sh -c 'echo $$ >"$0" && exec "$@"' "$scratch/master" \
            "${program[@]}" "${begin[@]}" --backend "grpc://$listen:$port" "${master_options[@]}"
        echo $? >"$scratch/code"
    ) > >(trap '' TERM && exec sed -u "s|$scratch/|$folder/|g") 2>&1 &
    session=$!
    "${helper[@]}" keep "$scratch/$name" "$kept" --every 300 &
    keeper=$!
    # One per core also where the master is: it needs little, and goes before them.
    srun --quiet --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
        --cpu-bind=none --kill-on-bad-exit=0 --wait=0 \
        nice -n 5 "${program[@]}" worker "grpc://$host:$port" "${worker_options[@]}" </dev/null &
    workers=$!

    while is_there "$session" && { [ -z "$stopping" ] || [ ! -s "$scratch/master" ]; }; do
        is_there "$workers" || stopping=${stopping:-idle}
        sleep 0.2
    done
    [ "$stopping" != slurm ] || ends "$session" 5 # Slurm tells all processes, if not this one alone
    [ -z "$stopping" ] || kill -TERM "$(cat "$scratch/master")" 2>/dev/null
    until ends "$session" 60; do :; done
    code=$(cat "$scratch/code" || echo 137)
    trap '' USR1 TERM
    kill "$keeper" 2>/dev/null
    scancel --quiet --signal=TERM "$SLURM_JOB_ID.0" || kill "$workers" 2>/dev/null
    ends "$keeper" 60
    # The address of this session means nothing later, or elsewhere.
    [ ! -e "$scratch/$name/spec.toml" ] || cp "$folder/specs/$name.toml" "$scratch/$name/spec.toml"
    "${helper[@]}" keep "$scratch/$name" "$kept" || unkept=yes
    ends "$workers" 15 || kill "$workers" 2>/dev/null
    if [ -n "$unkept" ]; then
        rm -f "$scratch/key.pem"
        say "cannot be copied to $kept; see above. All of it is in $scratch/$name on ${SLURMD_NODENAME:-this node}:" \
            "make room, copy it from there over $kept, and submit again"
        exit 1
    fi
fi

case $code in
0) say "finished" && exit 0 ;;
2) refuse "was refused; see above" ;;
143) ;; # it was stopped
*) say "ended with code $code; see above" && exit "$code" ;;
esac
case $stopping in
limit) ;;
idle) say "has no workers any more; see above" && exit 1 ;;
*) say "was stopped by Slurm; nothing is lost" && exit 143 ;;
esac
if [ "$restarts" -ge 100 ]; then
    say "was queued again $restarts times, which is enough; go on with: sbatch --array=$task $(printf %q "$folder/job.sh")"
    exit 1
fi
say "is queued again, for its time is up"
id=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
scontrol requeue "$id" || # which is not allowed everywhere
    GERMLINE_RESTARTS=$((restarts + 1)) sbatch --array="$task" "$folder/job.sh"
