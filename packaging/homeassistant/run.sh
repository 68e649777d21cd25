#!/bin/sh
# Joins the federation at the first start, and runs agentd. Home Assistant stores the user's options in /data/options.json.
set -eu
config=/config/agentd.yaml
option() { jq --raw-output ".$1 // empty" /data/options.json; }

if [ ! -e $config ]; then
  if [ -z "$(option join_url)" ] || [ -z "$(option token)" ]; then
    echo "join_url or token is empty: set both options to the values that \"coordinator enrol\" has printed" >&2
    exit 1
  fi
  agentd join "$(option join_url)" --token "$(option token)" --id "$(option id)" --config $config \
    --set state_dir=/data/state --no-start
fi
exec agentd run --config $config
