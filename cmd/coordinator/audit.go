package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/wire"
)

func auditCommand() *cobra.Command {
	var l cli.ConfigLoader
	var public string
	verify := &cobra.Command{
		Use: "verify", Short: "Verify that the audit log was not modified",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Verify that the audit log, in the folder `audit` of the state folder, was not modified. Each entry " +
			"must contain the hash of the previous entry, and each hash that the coordinator has signed in the " +
			"history must match an entry of the log. The coordinator may be running. On another machine, copies of " +
			"`audit` and history.jsonl and the public key are sufficient.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			u := settingsWithoutValidation(coordinatorsettings.Default())
			if err := settings.Load(&u, program, l.Path, l.Overrides); err != nil {
				return err
			}
			s := coordinatorsettings.ConfigFile(u)
			key, err := auditPublicKey(&s, public)
			if err != nil {
				return err
			}
			r, err := audit.Verify(s.StateDir, wire.FederationName(s.Federation), key, runs.ReadAuditHeads(s.StateDir))
			// A missing file is reported below, as a removed part of the log.
			if errors.As(err, new(*fs.PathError)) && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cannot read the audit log of %s: %w", s.StateDir, err)
			}
			if err != nil {
				return fmt.Errorf("the audit log of %s is damaged or was modified: %w", s.StateDir, err)
			}
			return printAuditReport(cmd, r)
		},
	}
	l.AddFlags(verify, program)
	verify.Flags().StringVar(&public, "public-key", "", "public key of the coordinator (default: from "+
		"identity.key_file)")
	return cli.GroupCommand("audit", "Verify the audit log", verify)
}

func auditPublicKey(s *coordinatorsettings.ConfigFile, public string) (ed25519.PublicKey, error) {
	if public != "" {
		return keys.ParsePublic(public)
	}
	key, err := s.CoordinatorPrivateKey()
	if err != nil {
		return nil, fmt.Errorf("identity.key_file: %w; set the public key with --public-key", err)
	}
	return key.Public().(ed25519.PublicKey), nil
}

// printAuditReport prints the verified log entries and the rounds that have no signed log head.
func printAuditReport(cmd *cobra.Command, r audit.VerificationReport) error {
	w := cmd.OutOrStdout()
	if r.LastEntry == 0 {
		return fmt.Errorf("the audit log is empty: its first entry is written at the first start of the coordinator")
	}
	fmt.Fprintf(w, "entries %d to %d were not modified; they match the %d hashes that the coordinator has signed\n",
		r.FirstEntry, r.LastEntry,
		r.VerifiedHeads)
	if r.LastVerifiedEntry < r.LastEntry {
		fmt.Fprintf(w, "entries from %d onwards are newer than the last signed hash; the coordinator signs the next "+
			"hash at the end of a round\n",
			max(r.FirstEntry, r.LastVerifiedEntry+1))
	}
	if r.UnsignedRounds > 0 {
		fmt.Fprintf(w, "the history contains no signed hash for %d rounds, so it was modified\n", r.UnsignedRounds)
	}
	return nil
}
