package main

import (
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/replica/jetstream"
)

// storeOf returns what connects to the servers that keep the state of several coordinators.
func storeOf(log *slog.Logger) func(s *settings.Coordinator) (replica.Store, error) {
	return func(s *settings.Coordinator) (replica.Store, error) {
		x := &s.Cluster
		name, err := x.ReplicaName()
		if err != nil {
			return nil, err
		}
		options := []nats.Option{nats.Name("coordinator " + name + " of " + s.Federation)}
		encryption, err := x.TLS()
		if err != nil {
			return nil, err
		}
		if encryption != nil {
			options = append(options, nats.Secure(encryption))
		}
		if x.Username != "" {
			options = append(options, nats.UserInfoHandler(func() (string, string) {
				password, err := x.Password()
				if err != nil {
					log.Error("cannot read the password for the cluster's engine", "err", err)
				}
				return x.Username, password
			}))
		}
		return jetstream.Open(jetstream.Options{URLs: x.NATS, Bucket: s.Bucket(), Copies: x.Copies, Logger: log,
			More: options})
	}
}
