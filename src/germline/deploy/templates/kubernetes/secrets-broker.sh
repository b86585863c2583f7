  word=$(openssl rand -hex 32)
  openssl rand -hex 32 > "$made/token"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -keyout "$made/key.pem" -out "$made/certificate.pem" -subj /CN=broker -addext subjectAltName=DNS:broker 2>/dev/null
  printf 'amqps://germline:%s@broker:@{met_at}//?ssl_ca_certs=@{secrets}/authority.pem' "$word" > "$made/address"
  printf '%s\n' 'default_user = germline' "default_pass = $word" 'listeners.tcp = none' \
    'listeners.ssl.default = @{met_at}' 'ssl_options.certfile = @{secrets}/certificate.pem' \
    'ssl_options.keyfile = @{secrets}/key.pem' > "$made/broker.conf"
  # A broker that has been started knows another password; nobody is to meet it again.
  $here delete deployment broker --ignore-not-found --cascade=foreground
  $here create secret generic broker --from-file=broker.conf="$made/broker.conf" \
    --from-file=certificate.pem="$made/certificate.pem" --from-file=key.pem="$made/key.pem"
  for who in master worker; do
    $here create secret generic $who --from-file=token="$made/token" \
      --from-file=address="$made/address" --from-file=authority.pem="$made/certificate.pem"
  done
