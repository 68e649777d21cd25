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
		Use: "verify", Short: "Check that nobody has changed the log of who changed what",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Check the log in the state folder's `audit`: that each entry has the hash of the one before, and that " +
			"each head that the coordinator has signed in a line of the history is one of this log. The coordinator " +
			"may be running. On another machine a copy of `audit` and history.jsonl, and the public key, are enough.",
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
			// a missing file is reported below, as a removed part of the log
			if errors.As(err, new(*fs.PathError)) && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("the audit log of %s cannot be read: %w", s.StateDir, err)
			}
			if err != nil {
				return fmt.Errorf("the audit log of %s is not what was written: %w", s.StateDir, err)
			}
			return printAuditReport(cmd, r)
		},
	}
	l.AddFlags(verify, program)
	verify.Flags().StringVar(&public, "public-key", "", "of the coordinator (default: that of identity.key_file)")
	return cli.GroupCommand("audit", "Check the log of who changed what", verify)
}

func auditPublicKey(s *coordinatorsettings.ConfigFile, public string) (ed25519.PublicKey, error) {
	if public != "" {
		return keys.ParsePublic(public)
	}
	key, err := s.CoordinatorPrivateKey()
	if err != nil {
		return nil, fmt.Errorf("identity.key_file: %w; name the public key with --public-key", err)
	}
	return key.Public().(ed25519.PublicKey), nil
}

// printAuditReport prints the verified entries and the rounds without a signed head.
func printAuditReport(cmd *cobra.Command, r audit.VerificationReport) error {
	w := cmd.OutOrStdout()
	if r.LastEntry == 0 {
		return fmt.Errorf("there is no entry: the log begins with the first start of the coordinator")
	}
	fmt.Fprintf(w, "entries %d to %d are what was written; %d signed heads agree\n", r.FirstEntry, r.LastEntry,
		r.VerifiedHeads)
	if r.LastVerifiedEntry < r.LastEntry {
		fmt.Fprintf(w, "entries from %d on are newer than the last signed head, which comes with the end of a round\n",
			max(r.FirstEntry, r.LastVerifiedEntry+1))
	}
	if r.UnsignedRounds > 0 {
		fmt.Fprintf(w, "%d rounds have no signed head: somebody has changed the history\n", r.UnsignedRounds)
	}
	return nil
}
