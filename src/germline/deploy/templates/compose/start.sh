#!/bin/sh
# Build and start: ./start.sh [SOURCE]; SOURCE is explained in image/build.sh. Called again it goes on.
set -eu
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
if [ ! -e .env ]; then
  umask 077
  word=$(openssl rand -hex 32)
  {
    printf 'GERMLINE_TOKEN=%s\n' "$(openssl rand -hex 32)"
    printf 'GERMLINE_ADDRESS=amqp://germline:%s@broker:5672//\n' "$word"
    printf 'GERMLINE_BROKER="default_user = germline\\ndefault_pass = %s"\n' "$word"
  } > .env.draft
  mv .env.draft .env
fi
sh image/build.sh "$@"
docker compose up --detach
echo "TensorBoard: http://127.0.0.1:6006"
echo "RabbitMQ:    http://127.0.0.1:15672, user germline, the password is in .env"
echo "What goes on: docker compose logs --follow master"
