#!/bin/sh
# Build and start: ./start.sh [SOURCE]; SOURCE is explained in image/build.sh. Called again it goes on.
# The image is pushed; for a cluster on this machine say LOAD="kind load docker-image" or
# LOAD="minikube image load".
set -eu
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
here="kubectl --namespace germline-frostbite-laptop"

# Every build has a tag of its own: nodes do not pull again what they have by the same name.
IMAGE=germline-frostbite-laptop:1.0.0-$(date -u +%Y%m%d%H%M%S)
export IMAGE
sh image/build.sh "$@"
${LOAD:-docker push} "$IMAGE"

kubectl apply --filename namespace.yaml
umask 077
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
trap 'exit 1' HUP INT TERM
# Secrets fit one another, so that all are made anew if one is missing.
there=$($here get secret master worker --ignore-not-found --output name)
if [ "$(echo "$there" | grep -c /)" -ne 2 ]; then
  $here delete secret master worker --ignore-not-found
  openssl rand -hex 32 > "$made/token"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -keyout "$made/key.pem" -out "$made/certificate.pem" -subj /CN=master -addext subjectAltName=DNS:master 2>/dev/null
  $here create secret generic master --from-file=token="$made/token" \
    --from-file=certificate.pem="$made/certificate.pem" --from-file=key.pem="$made/key.pem"
  $here create secret generic worker --from-file=token="$made/token" \
    --from-file=authority.pem="$made/certificate.pem"
fi
for part in *.yaml; do
  sed "s|image: \"germline-frostbite-laptop:1.0.0\"|image: \"$IMAGE\"|" "$part" > "$made/$part"
done
# A job cannot be changed; what it has done is on its disk.
$here delete job master --ignore-not-found
kubectl apply --kustomize "$made"
echo "What goes on: $here logs --follow job/master"
echo "TensorBoard:  $here port-forward job/master 6006, then http://127.0.0.1:6006"
