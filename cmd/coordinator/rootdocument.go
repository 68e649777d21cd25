package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/service"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func rootDocumentCommand() *cobra.Command {
	return cli.GroupCommand("root", "Create and install the federation's root document, which contains the trusted "+
		"keys",
		rootShowCommand(), rootRotateCommand(), rootSignCommand(), rootInstallCommand())
}

func rootShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show the trusted keys in a root document",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readRootDocument(args[0])
			if err != nil {
				return err
			}
			return printRootDocument(cmd.OutOrStdout(), &d)
		},
	}
}

// readRootDocument reads a root document (signed list of trusted keys) from a file. The document may still lack
// signatures.
func readRootDocument(path string) (wire.RootDocument, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return wire.RootDocument{}, err
	}
	d, err := wire.DecodeRootDocument(p)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return d, err
}

func printRootDocument(w io.Writer, d *wire.RootDocument) error {
	var b strings.Builder
	fmt.Fprintf(&b, "federation   %s\nversion      %d\n", d.Federation, d.Version)
	for _, k := range d.RootKeys() {
		fmt.Fprintf(&b, "root key     %s\n", keys.FormatPublic(k.Ed25519()))
	}
	fmt.Fprintf(&b, "signatures   %d required\n", d.RootThreshold())
	for _, k := range d.CoordinatorKeys() {
		fmt.Fprintf(&b, "coordinator  %s\n", keys.FormatPublic(k.Ed25519()))
	}
	fmt.Fprintf(&b, "authority    %s\n", d.CACertificateHash)
	for _, id := range d.RevokedAgents {
		fmt.Fprintf(&b, "revoked      %s\n", id)
	}
	pin := d.RootPin()
	fmt.Fprintf(&b, "pin          %s\n", hex.EncodeToString(pin[:]))
	if _, err := wire.DecodeAndVerifyRootDocument(d.Bytes()); err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// rootDocumentRotation contains the changes that the next version of the root document makes.
type rootDocumentRotation struct {
	signingKeyPath, nextRootKeyPath, outputPath, nextCAPath string
	nextCoordinatorKey                                      string
	rootKeys, revokedDevices, readmittedDevices             []string
	signatureThreshold                                      uint8
	dropOldKeys, rootKeyLost                                bool
}

func rootRotateCommand() *cobra.Command {
	var r rootDocumentRotation
	cmd := &cobra.Command{
		Use: "rotate DOCUMENT", Short: "Create the next root document, on the machine with the root key",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: `Create the next root document, on the machine with the root key. This machine needs no
network.

With --coordinator-key, the coordinator gets a new key. The previous key remains valid
until a document is created with --finish, so that devices that were offline still
accept the coordinator. If a key was stolen, set --finish immediately. With --root-key,
the root key changes. With --root-keys, the document names further root keys, and
--threshold of them must sign each document: sign it with "coordinator root sign".

Then, on the coordinator's machine: coordinator root install DOCUMENT`,
		Example: "  coordinator root rotate root --key root.key --coordinator-key KEY --out root-2\n" +
			"  coordinator root rotate root-2 --key root.key --finish --out root-3",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readRootDocument(args[0])
			if err == nil {
				err = r.writeNextRoot(&d)
			}
			if err != nil {
				return err
			}
			return printRootDocument(cmd.OutOrStdout(), &d)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.signingKeyPath, "key", "", "file of the root key that signs the document")
	f.StringVar(&r.outputPath, "out", "", "output file for the new document")
	f.StringVar(&r.nextCoordinatorKey, "coordinator-key", "",
		"next public key of the coordinator, as printed by \"key new\"")
	f.BoolVar(&r.dropOldKeys, "finish", false, "remove the coordinator's previous keys, so that devices accept only "+
		"its newest key")
	f.BoolVar(&r.rootKeyLost, "lost", false,
		"create a new root because the root key is lost; --key is the new root key. Devices do not accept this "+
			"document over the broker: each device must join again")
	f.StringVar(&r.nextRootKeyPath, "root-key", "",
		"file of the next root key, which replaces the root key in --key")
	f.StringSliceVar(&r.rootKeys, "root-keys", nil, "public keys of additional root keys, which replace the previous "+
		"additional root keys")
	f.Uint8Var(&r.signatureThreshold, "threshold", 0, "number of root keys that must sign each new document")
	f.StringVar(&r.nextCAPath, "ca", "", "file with the PEM certificate of the next certificate authority")
	f.StringSliceVar(&r.revokedDevices, "revoke", nil, "ids of devices to revoke")
	f.StringSliceVar(&r.readmittedDevices, "admit", nil, "ids of revoked devices that may join again")
	return cmd
}

// writeNextRoot creates the next version of the root document d and writes it to a file.
func (r *rootDocumentRotation) writeNextRoot(d *wire.RootDocument) error {
	if r.signingKeyPath == "" || r.outputPath == "" {
		return cli.UsageErrorf("--key FILE (the root key) and --out FILE (the new document) are required")
	}
	if r.rootKeyLost && r.nextRootKeyPath != "" {
		return cli.UsageErrorf("--lost cannot be combined with --root-key, because --key already names the new root " +
			"key")
	}
	if _, err := os.Lstat(r.outputPath); err == nil {
		return fmt.Errorf("%s already exists: choose another name for the new document", r.outputPath)
	}
	before, err := keys.ReadSigningKey(r.signingKeyPath)
	if err != nil {
		return err
	}
	if !r.rootKeyLost && !slices.Contains(d.RootKeys(), wire.SigningPublicKeyOf(before)) {
		return fmt.Errorf("%s is not a root key of version %d of the root document; if the root key is lost, create "+
			"a new root with --lost, and let each device join again", r.signingKeyPath, d.Version)
	}
	d.Version++
	key := before
	if r.rootKeyLost {
		d.RootKey, d.RootQuorum, before = wire.SigningPublicKeyOf(key), wire.RootQuorum{}, nil
	}
	if r.nextRootKeyPath != "" {
		if key, err = keys.ReadSigningKey(r.nextRootKeyPath); err != nil {
			return err
		}
	}
	if err := errors.Join(r.rotateCoordinatorKeys(d), r.rotateRootKeys(d, key, before),
		r.changeCAAndRevocations(d)); err != nil {
		return err
	}
	d.Cosignatures = nil
	d.Sign(key, before)
	return writeRootDocument(r.outputPath, d)
}

func (r *rootDocumentRotation) rotateCoordinatorKeys(d *wire.RootDocument) error {
	if r.nextCoordinatorKey != "" {
		key, err := keys.ParsePublic(r.nextCoordinatorKey)
		if err != nil {
			return err
		}
		next := wire.SigningPublicKey(key)
		all := slices.DeleteFunc(d.CoordinatorKeys(), func(k wire.SigningPublicKey) bool { return k == next })
		d.CoordinatorKey, d.ExtraCoordinatorKeys = next, sortKeys(all)
	}
	if r.dropOldKeys {
		d.ExtraCoordinatorKeys = nil
	}
	return nil
}

func sortKeys(all []wire.SigningPublicKey) []wire.SigningPublicKey {
	slices.SortFunc(all, func(a, b wire.SigningPublicKey) int { return bytes.Compare(a[:], b[:]) })
	return all
}

// rotateRootKeys changes the root keys in the document. The signing key becomes the first of the root keys.
func (r *rootDocumentRotation) rotateRootKeys(d *wire.RootDocument, key, before ed25519.PrivateKey) error {
	own := wire.SigningPublicKeyOf(key)
	others := slices.DeleteFunc(d.RootKeys(), func(k wire.SigningPublicKey) bool {
		return k == own || before != nil && k == wire.SigningPublicKeyOf(before)
	})
	if r.rootKeys != nil {
		others = nil
		for _, text := range r.rootKeys {
			k, err := keys.ParsePublic(text)
			if err != nil {
				return err
			}
			others = append(others, wire.SigningPublicKey(k))
		}
	}
	threshold := d.RootQuorum.Threshold
	if r.signatureThreshold > 0 {
		threshold = r.signatureThreshold
	}
	if threshold == 0 && len(others) > 0 {
		threshold = 1
	}
	if int(threshold) > len(others)+1 {
		return fmt.Errorf("--threshold %d exceeds the number of root keys, which is %d",
			threshold, len(others)+1)
	}
	d.RootQuorum = wire.RootQuorum{Threshold: threshold, ExtraKeys: sortKeys(others)}
	return nil
}

// changeCAAndRevocations changes the certificate authority and the revoked devices.
func (r *rootDocumentRotation) changeCAAndRevocations(d *wire.RootDocument) error {
	if r.nextCAPath != "" {
		p, err := os.ReadFile(r.nextCAPath)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(p)
		if block == nil || block.Type != "CERTIFICATE" {
			return fmt.Errorf("%s contains no certificate in PEM format", r.nextCAPath)
		}
		d.CACertificateHash = sha256.Sum256(block.Bytes)
	}
	for _, id := range r.revokedDevices {
		if err := wire.AgentID(id).ValidateNonCoordinator(); err != nil {
			return err
		}
		d.RevokedAgents = append(d.RevokedAgents, wire.AgentID(id))
	}
	for _, id := range r.readmittedDevices {
		if !slices.Contains(d.RevokedAgents, wire.AgentID(id)) {
			return fmt.Errorf("--admit %s: this device is not revoked in the root document", id)
		}
	}
	d.RevokedAgents = slices.DeleteFunc(d.RevokedAgents, func(id wire.AgentID) bool {
		return slices.Contains(r.readmittedDevices,
			string(id))
	})
	slices.Sort(d.RevokedAgents)
	if d.RevokedAgents = slices.Compact(d.RevokedAgents); len(d.RevokedAgents) > wire.MaxRevokedAgents {
		return fmt.Errorf("%d devices are revoked, which exceeds the limit of %d: use --admit for revoked devices "+
			"that are no longer in the list of agents", len(d.RevokedAgents), wire.MaxRevokedAgents)
	}
	return nil
}

// writeRootDocument writes a root document after verifying that it can be decoded. The document may lack signatures.
func writeRootDocument(path string, d *wire.RootDocument) error {
	if _, err := wire.DecodeRootDocument(d.Bytes()); err != nil {
		return err
	}
	return store.LocalDisk.WriteFileDurably(path, d.Bytes(), 0o666)
}

func rootSignCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "sign DOCUMENT", Short: "Sign a new root document with another root key",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readRootDocument(args[0])
			if err != nil {
				return err
			}
			if d.RootQuorum.Threshold == 0 {
				return errors.New("the document has only one root key, which has already signed the document: to add " +
					"root keys, use coordinator root rotate --root-keys")
			}
			if key == "" {
				return cli.UsageErrorf("--key FILE is required: a root key of this version or of the previous " +
					"version of the root document")
			}
			secret, err := keys.ReadSigningKey(key)
			if err != nil {
				return err
			}
			d.Cosign(secret)
			if err := writeRootDocument(args[0], &d); err != nil {
				return err
			}
			return printRootDocument(cmd.OutOrStdout(), &d)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file of a root key of this version or of the previous version of the "+
		"root document")
	return cmd
}

func rootInstallCommand() *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "install DOCUMENT", Short: "Install the next root document on the coordinator and all devices",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: `Install the next root document on the coordinator and all devices.

A running coordinator uses it immediately and sends it to the devices over the broker.
A stopped coordinator does so at its next start. The document must contain the key of
this coordinator: after a key was stolen, stop the coordinator, set identity.key_file
to the new key, install the document, and start the coordinator.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			version, err := installRootDocument(cmd, &l, p)
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "version %d of the root document is installed\n", version)
			}
			return err
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

func installRootDocument(cmd *cobra.Command, l *cli.ConfigLoader, document []byte) (version uint32, err error) {
	c, err := newAPIClient(l)
	if err != nil {
		return 0, err
	}
	var done coordinatord.RootInstalled
	err = c.Call(cmd.Context(), http.MethodPost, "/v1/root", coordinatord.RootInstallRequest{Document: document}, &done)
	if !errors.Is(err, api.ErrNotRunning) {
		return done.Version, err
	}
	s := settingsWithoutValidation(coordinatorsettings.Default())
	if err := settings.Load(&s, program, l.Path, l.Overrides); err != nil {
		return 0, err
	}
	if err := service.CheckFolderOwnedBySelf("state folder", s.StateDir); err != nil {
		return 0, err
	}
	lock, err := store.LockStateFolder(s.StateDir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	d, err := coordinatord.InstallRootDocument(store.LocalDisk, (*coordinatorsettings.ConfigFile)(&s), document)
	return uint32(d.Version), err
}
