#!/bin/sh
# Build the image: ./build.sh [SOURCE], where SOURCE is a checkout of Germline or its wheel. Without
# it, what is in wheels/ already is taken, or else the release.
set -eu
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
if [ $# -gt 0 ] || ! ls wheels/germline-1.0.0-*.whl >/dev/null 2>&1; then
  rm -rf wheels
  python3 -m pip wheel --quiet --no-deps --wheel-dir wheels "${1:-germline==1.0.0}"
fi
docker build --tag "${IMAGE:-germline-frostbite-laptop:1.0.0}" .
