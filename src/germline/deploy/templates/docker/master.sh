#!/bin/sh
# Begin the run, or go on with it where it was left. Options go to `germline train` or `resume`.
set -eu
run=/runs/@{name}
if [ -e @{secrets}/address ]; then
  GERMLINE_BACKEND=$(cat @{secrets}/address)
  export GERMLINE_BACKEND
  # A broker that is not up yet is no mistake of the spec, which is all that code 2 is to mean.
  python3 -m germline.deploy.wait @{secrets}/address
fi
if [ -e "$run/run.db" ]; then
  exec germline resume "$run" --plain --tensorboard@{trust} "$@"
fi
exec germline train @{home}/spec.toml --out "$run" --plain --tensorboard@{trust}@{chosen} "$@"
