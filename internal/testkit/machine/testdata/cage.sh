# Runs in an emulated machine as a service, and tells the console what it finds. The machine goes off at its end.
exec >/dev/console 2>&1
trap 'poweroff --force' EXIT

for who in root nobody; do
  systemd-run --quiet --pipe --wait --collect -p Delegate=yes -p User=$who /external.test -test.v -test.run TestCage
  echo "TEST $who=$?"
done
# With all that agentd's unit closes, but for what docs/TRAINER.md opens.
systemd-run --quiet --pipe --wait --collect -p Delegate="memory pids" -p User=nobody -p NoNewPrivileges=yes \
  -p CapabilityBoundingSet= -p AmbientCapabilities= -p ProtectSystem=strict -p ProtectHome=yes -p PrivateTmp=yes -p PrivateDevices=yes \
  -p DevicePolicy=closed -p PrivateUsers=yes -p ProtectHostname=yes -p ProtectClock=yes -p ProtectKernelTunables=yes \
  -p ProtectKernelModules=yes -p ProtectKernelLogs=yes -p ProtectProc=invisible -p LockPersonality=yes -p RestrictRealtime=yes \
  -p RestrictSUIDSGID=yes -p "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX" -p SystemCallArchitectures=native \
  -p SystemCallFilter=@system-service -p KeyringMode=private -p RemoveIPC=yes /external.test -test.v -test.run TestCage
echo "TEST hardened=$?"
