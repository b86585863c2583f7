until secret ${Certificate} | grep -q 'BEGIN CERTIFICATE'; do sleep 5; done
secret ${Certificate} | keep authority.pem
cores=$(lscpu --parse=SOCKET,CORE | grep -v '^#' | sort -u | wc -l)
docker rm --force worker 2> /run/rm.log || true
docker run --detach --name worker --restart on-failure --user @{user} --cap-drop ALL \
  --security-opt no-new-privileges --stop-timeout @{grace} --env GERMLINE_PROCESSES=$cores \
  --volume /run/germline:@{secrets}:ro \
  --log-driver awslogs --log-opt awslogs-region=$region --log-opt awslogs-group=${WorkerLog} \
  --entrypoint sh '${Image}' @{home}/worker.sh grpc://${Master.PrivateIp}:@{port} \
  --authority @{secrets}/authority.pem
# Spot instances are told two minutes before they are taken; a worker goes in @{drain} seconds.
{
  echo 'set -u'
  declare -f imds
  echo 'until imds spot/instance-action; do sleep 5; done'
  echo 'docker stop --time @{drain} worker'
} > /run/notice.sh
systemd-run --unit notice --collect bash /run/notice.sh
