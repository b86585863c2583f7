#!/bin/bash
set -euo pipefail
# This is done at every start of the machine, not only at its first.
again=/var/lib/cloud/scripts/per-boot/germline
printf '#!/bin/sh\nexec /var/lib/cloud/instance/scripts/part-001\n' > $again
chmod 0700 $again
dnf install --assumeyes --quiet docker openssl
# Containers are given the time that they want to end.
mkdir -p /etc/docker /etc/systemd/system/docker.service.d
echo '{"shutdown-timeout": @{grace}}' > /etc/docker/daemon.json
printf '[Service]\nTimeoutStopSec=@{longer}\n' > /etc/systemd/system/docker.service.d/stop.conf
systemctl daemon-reload
systemctl enable --now docker
region=${AWS::Region}
registry=$(cut -d/ -f1 <<< '${Image}')
secret() { aws secretsmanager get-secret-value --region $region --secret-id "$1" --query SecretString --output text; }
imds() {
  token=$(curl -sS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)
  curl -sS --fail -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"
}
# Secrets are kept in memory, where only the container's user reads them.
install --directory --owner=@{user} --group=@{user} --mode=0700 /run/germline
keep() { install --owner=@{user} --group=@{user} --mode=0400 /dev/stdin "/run/germline/$1"; }
secret ${Token} | keep token
if [[ $registry == *.amazonaws.com ]]; then
  aws ecr get-login-password --region $region | docker login --username AWS --password-stdin "$registry"
fi
docker pull --quiet '${Image}'
