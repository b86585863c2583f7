  openssl rand -hex 32 > "$made/token"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -keyout "$made/key.pem" -out "$made/certificate.pem" -subj /CN=master -addext subjectAltName=DNS:master 2>/dev/null
  $here create secret generic master --from-file=token="$made/token" \
    --from-file=certificate.pem="$made/certificate.pem" --from-file=key.pem="$made/key.pem"
  $here create secret generic worker --from-file=token="$made/token" \
    --from-file=authority.pem="$made/certificate.pem"
