# The disk of the run: made once, found again by later instances.
disk=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_$(tr -d - <<< ${Disk})
until [ -e $disk ]; do sleep 2; done
blkid $disk || mkfs.ext4 -q $disk
mkdir -p /runs
mount $disk /runs
chown @{user}:@{user} /runs
# The key never leaves this disk; workers find the certificate where secrets are.
address=$(imds local-ipv4)
tls=/runs/.tls
install --directory --mode=0700 $tls
if ! openssl x509 -in $tls/certificate.pem -noout -checkip $address 2>&1 | grep -q 'does match'; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -keyout $tls/key.pem -out $tls/certificate.pem -subj /CN=master -addext "subjectAltName=IP:$address"
fi
keep key.pem < $tls/key.pem
keep certificate.pem < $tls/certificate.pem
aws secretsmanager put-secret-value --region $region --secret-id ${Certificate} \
  --secret-string file://$tls/certificate.pem > /run/put.log
docker rm --force tensorboard master 2> /run/rm.log || true
docker run --detach --name tensorboard --restart on-failure --user @{user} --cap-drop ALL \
  --security-opt no-new-privileges --publish 127.0.0.1:6006:6006 --volume /runs:/runs:ro \
  --entrypoint tensorboard '${Image}' --logdir /runs --host 0.0.0.0
docker run --detach --name master --restart on-failure --user @{user} --cap-drop ALL \
  --security-opt no-new-privileges --publish @{port}:@{port} --stop-timeout 60 \
  --volume /runs:/runs --volume /run/germline:@{secrets}:ro @{variables}\
  --log-driver awslogs --log-opt awslogs-region=$region --log-opt awslogs-group=${MasterLog} \
  --entrypoint sh '${Image}' @{home}/master.sh --set backend.price=${WorkerPrice}
