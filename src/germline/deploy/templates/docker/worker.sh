#!/bin/sh
# Work for the run's master, one process per container unless options say otherwise.
set -eu
if [ -e @{secrets}/address ]; then
  GERMLINE_URL=$(cat @{secrets}/address)
  export GERMLINE_URL
fi
exec germline worker --token-file @{secrets}/token --drain @{drain} --processes "${GERMLINE_PROCESSES:-1}"@{trust} "$@"
