#!/bin/sh
# Begin the run, or go on with it where it was left. Options go to `germline train` or `resume`.
set -eu
run=/runs/frostbite-laptop
if [ -e /run/secrets/germline/address ]; then
  GERMLINE_BACKEND=$(cat /run/secrets/germline/address)
  export GERMLINE_BACKEND
  # A broker that is not up yet is no mistake of the spec, which is all that code 2 is to mean.
  python3 -m germline.deploy.wait /run/secrets/germline/address
fi
if [ -e "$run/run.db" ]; then
  exec germline resume "$run" --plain --tensorboard "$@"
fi
exec germline train /opt/germline/spec.toml --out "$run" --plain --tensorboard ${GERMLINE_ENVIRONMENT:+--set "task.game=$GERMLINE_ENVIRONMENT"} "$@"
