#!/bin/sh
# Runs Mosquitto in its container, and reloads the access rules whenever the coordinator has written new rules.
set -eu
ulimit -n 20000 # each connection uses a file descriptor, and Docker's default may be 1024
new=/rules/acl rules=/etc/mosquitto/acl
mosquitto -c /etc/mosquitto/mosquitto.conf &
broker=$!
trap 'kill -TERM $broker; wait $broker; exit' TERM INT
while kill -0 $broker 2>/dev/null; do
  if [ -s $new ] && ! cmp -s $new $rules; then
    cp $new $rules.new
    mv $rules.new $rules
    kill -HUP $broker
  fi
  sleep 2 &
  wait $!
done
wait $broker
