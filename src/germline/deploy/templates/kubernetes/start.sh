#!/bin/sh
# Build and start: ./start.sh [SOURCE]; SOURCE is explained in image/build.sh. Called again it goes on.
# The image is pushed; for a cluster on this machine say LOAD="kind load docker-image" or
# LOAD="minikube image load".
set -eu
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
here="kubectl --namespace germline-@{name}"

# Every build has a tag of its own: nodes do not pull again what they have by the same name.
IMAGE=@{image}@{joint}$(date -u +%Y%m%d%H%M%S)
export IMAGE
sh image/build.sh "$@"
${LOAD:-docker push} "$IMAGE"

kubectl apply --filename namespace.yaml
umask 077
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
trap 'exit 1' HUP INT TERM
# Secrets fit one another, so that all are made anew if one is missing.
there=$($here get secret @{held} --ignore-not-found --output name)
if [ "$(echo "$there" | grep -c /)" -ne @{held_count} ]; then
  $here delete secret @{held} --ignore-not-found
@{make_secrets}fi
for part in *.yaml; do
  sed "s|image: \"@{image}\"|image: \"$IMAGE\"|" "$part" > "$made/$part"
done
# A job cannot be changed; what it has done is on its disk.
$here delete job master --ignore-not-found
kubectl apply --kustomize "$made"
echo "What goes on: $here logs --follow job/master"
echo "TensorBoard:  $here port-forward job/master 6006, then http://127.0.0.1:6006"
