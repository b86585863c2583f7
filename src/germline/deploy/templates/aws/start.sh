#!/bin/sh
# Build and start: ZONE=... VPC=... SUBNET=... ./start.sh [SOURCE]; SOURCE is explained in
# image/build.sh. WORKERS, PRICE and ENVIRONMENT change the template's own. Called again it updates.
set -eu
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
: "${ZONE:?such as us-west-2a}" "${VPC:?such as vpc-0123}" "${SUBNET:?such as subnet-0123}"
# The tools of AWS take the region from this, or speak to a host that does not exist.
AWS_REGION=${ZONE%?}
AWS_DEFAULT_REGION=$AWS_REGION
export AWS_REGION AWS_DEFAULT_REGION

registry=$(aws sts get-caller-identity --query Account --output text).dkr.ecr.$AWS_REGION.amazonaws.com
repository=germline-@{name}
IMAGE=$registry/$repository:$(date -u +%Y%m%d%H%M%S)
export IMAGE
aws ecr describe-repositories --repository-names $repository >/dev/null 2>&1 ||
  aws ecr create-repository --repository-name $repository --image-tag-mutability IMMUTABLE >/dev/null
sh image/build.sh "$@"
aws ecr get-login-password | docker login --username AWS --password-stdin "$registry"
docker push "$IMAGE"

aws cloudformation deploy --stack-name germline-@{name} --template-file template.yaml \
  --capabilities CAPABILITY_IAM --parameter-overrides Zone="$ZONE" Vpc="$VPC" Subnet="$SUBNET" \
  Image="$IMAGE" ${WORKERS:+Workers="$WORKERS"} ${PRICE:+WorkerPrice="$PRICE"} \
  ${ENVIRONMENT:+Environment="$ENVIRONMENT"}
master=$(aws cloudformation describe-stacks --stack-name germline-@{name} \
  --query "Stacks[0].Outputs[?OutputKey=='MasterInstance'].OutputValue" --output text)
echo "TensorBoard: aws ssm start-session --target $master --document-name AWS-StartPortForwardingSession" \
  "--parameters portNumber=6006,localPortNumber=6006, then http://127.0.0.1:6006"
echo "To end it:   aws cloudformation delete-stack --stack-name germline-@{name}; a snapshot of the run is kept"
