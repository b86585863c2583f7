#!/bin/sh
# Build and start: ./start.sh [SOURCE]; SOURCE is explained in image/build.sh. Called again it goes on.
# The image is pushed; for a cluster on this machine say LOAD="kind load docker-image" or
# LOAD="minikube image load".
set -eu
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
here="kubectl --namespace germline-@{name}"

IMAGE=@{image}
export IMAGE
sh image/build.sh "$@"
${LOAD:-docker push} "$IMAGE"

kubectl apply --filename namespace.yaml
if ! $here get secret worker >/dev/null 2>&1; then
  umask 077
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  $here delete secret master broker --ignore-not-found
@{make_secrets}fi
# A job cannot be changed; what it has done is on its disk.
$here delete job master --ignore-not-found
kubectl apply --kustomize .
echo "What goes on: $here logs --follow job/master"
echo "TensorBoard:  $here port-forward job/master 6006, then http://127.0.0.1:6006"
