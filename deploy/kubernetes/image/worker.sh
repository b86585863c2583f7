#!/bin/sh
# Work for the run's master, one process per container unless options say otherwise.
set -eu
if [ -e /run/secrets/germline/address ]; then
  GERMLINE_URL=$(cat /run/secrets/germline/address)
  export GERMLINE_URL
fi
exec germline worker --token-file /run/secrets/germline/token --drain 90 --processes "${GERMLINE_PROCESSES:-1}" "$@"
