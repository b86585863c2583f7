#!/bin/sh
# Build and start: ./start.sh [SOURCE]; SOURCE is explained in image/build.sh. Called again it goes on.
# The image is pushed; for a cluster on this machine say LOAD="kind load docker-image" or
# LOAD="minikube image load". KubeRay's operator, version 1.5.1 or newer, must be there.
set -eu
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
here="kubectl --namespace germline-frostbite-laptop"
kubectl get crd rayjobs.ray.io >/dev/null

# Every build has a tag of its own: nodes do not pull again what they have by the same name.
IMAGE=germline-frostbite-laptop:1.0.0-$(date -u +%Y%m%d%H%M%S)
export IMAGE
sh image/build.sh "$@"
${LOAD:-docker push} "$IMAGE"

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
trap 'exit 1' HUP INT TERM
for part in *.yaml; do
  sed "s|image: \"germline-frostbite-laptop:1.0.0\"|image: \"$IMAGE\"|" "$part" > "$made/$part"
done
kubectl apply --filename namespace.yaml
# A job that is over is not begun again; what it has done is on its disk.
$here delete rayjob frostbite-laptop --ignore-not-found
kubectl apply --kustomize "$made"
echo "What goes on: $here logs --follow --selector=app=submitter"
echo "Ray's page:   $here port-forward service/\$($here get raycluster --output name | cut -d/ -f2)-head-svc 8265"
