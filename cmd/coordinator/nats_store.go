package main

import (
	"crypto/tls"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/replica/jetstream"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
)

// natsStoreOpener returns a function that connects to the NATS servers in which several coordinators share their state.
func natsStoreOpener(log *slog.Logger) func(s *coordinatorsettings.ConfigFile) (replica.KeyValueStore, error) {
	return func(s *coordinatorsettings.ConfigFile) (replica.KeyValueStore, error) {
		x := &s.Cluster
		name, err := x.ReplicaName()
		if err != nil {
			return nil, err
		}
		options := []nats.Option{nats.Name("coordinator " + name + " of " + s.Federation)}
		options = append(options, natsTLSOptions(x)...)
		if x.Username != "" {
			options = append(options, nats.UserInfoHandler(func() (string, string) {
				password, err := x.Password()
				if err != nil {
					log.Error("cannot read the password of the state store", "err", err)
				}
				return x.Username, password
			}))
		}
		return jetstream.Open(jetstream.Options{URLs: x.NATSURLs, Bucket: s.NATSBucketName(),
			StreamReplicas: x.StateCopies,
			Logger:         log,
			ConnectOptions: options})
	}
}

// natsTLSOptions returns the TLS options for NATS connections. The certificate files are read again for each
// connection, so that they can be replaced at any time.
func natsTLSOptions(x *coordinatorsettings.Cluster) (options []nats.Option) {
	if x.CAFile != "" || x.CertFile != "" {
		options = append(options, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS13}))
	}
	if x.CAFile != "" {
		options = append(options, nats.RootCAs(x.CAFile))
	}
	if x.CertFile != "" {
		options = append(options, nats.ClientCert(x.CertFile, x.PrivateKeyFile()))
	}
	return options
}
