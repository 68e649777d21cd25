package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/join"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/packaging"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// defaultTokenTTL is the default time after which a token for joining a federation expires.
const defaultTokenTTL = 24 * time.Hour

// tokenFlags contains the flags of commands that request a token for joining.
type tokenFlags struct {
	coordinatord.TokenRequest
	ttl time.Duration
}

func (w *tokenFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.ttl, "ttl", defaultTokenTTL, "time for which the token is valid")
}

// printJoinCommand requests a token and prints the command with which the device can join.
func (w *tokenFlags) printJoinCommand(cmd *cobra.Command, l *cli.ConfigLoader) error {
	c, err := newAPIClient(l)
	if err != nil {
		return err
	}
	w.TTL = w.ttl.String()
	var made coordinatord.IssuedToken
	if err := c.Call(cmd.Context(), http.MethodPost, "/v1/tokens", &w.TokenRequest, &made); err != nil {
		return err
	}
	line := made.JoinCommand
	until := made.Expires.Local().Format(time.DateTime)
	if w.Device == "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "WARNING: until %s, any device with this token can join under any "+
			"unused name.\nOn each device:\n  %s\n", until, line)
		return err
	}
	code := ""
	if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if code, err = qrText(line); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Run this command once on the device, before %s:\n  %s\n%s", until, line,
		code)
	return err
}

func enrolCommand() *cobra.Command {
	var l cli.ConfigLoader
	var w tokenFlags
	var open, closed bool
	var kit, known string
	cmd := &cobra.Command{
		Use: "enrol", Short: "Create a token and print the command with which a device joins",
		Args: cli.ArgsCheckWithUsageError(cobra.MaximumNArgs(1)),
		Long: `Create a token and print the command with which a device joins the federation.

A token is for one device, can be used once, and expires. The device generates its own
keys, and authenticates the coordinator with the token. The coordinator must be
running.

For a device without a network, --kit writes its files, including its keys, into a tar
archive. Anyone who can read the archive can act as that device. If you already have
the key of a device, from "agentd key new", --preauthorize adds it to the list. On a
testbed, --open creates a token with which any device can join, and --close removes it.`,
		Example: "  coordinator enrol --device press-01\n  coordinator enrol --device press-02 --kit press-02.tar\n" +
			"  coordinator enrol --preauthorize press-03 KEY",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("ttl") && (closed || known != "" || kit != ""):
				return cli.UsageErrorf("--ttl sets the lifetime of a new token: it requires --device ID or --open " +
					"and cannot be combined with --kit")
			case closed && known == "" && len(args) == 0 && w.Device == "" && !open && kit == "":
				return revokeOpenToken(cmd, &l)
			case closed:
				return cli.UsageErrorf("--close cannot be combined with other flags or arguments")
			case known != "" && len(args) == 1 && w.Device == "" && !open && kit == "":
				return admitKnownKey(cmd, &l, known, args[0])
			case known != "" || len(args) > 0:
				return cli.UsageErrorf("--preauthorize requires an ID and a KEY (--preauthorize ID KEY) and cannot " +
					"be combined with other flags")
			case (w.Device == "") != open:
				return cli.UsageErrorf("specify --device ID for one device, or --open for any device")
			case kit != "" && open:
				return cli.UsageErrorf("--kit writes the files of one device: specify --device ID --kit FILE")
			case kit != "":
				return writeDeviceKit(cmd, &l, wire.AgentID(w.Device), kit)
			}
			return w.printJoinCommand(cmd, &l)
		},
	}
	l.AddFlags(cmd, program)
	w.addFlags(cmd)
	cmd.Flags().StringVar(&w.Device, "device", "", "id of the device")
	cmd.Flags().BoolVar(&open, "open", false, "create a token with which any device can join, for testbeds")
	cmd.Flags().BoolVar(&closed, "close", false, "remove the token that --open created")
	cmd.Flags().StringVar(&kit, "kit", "", "instead of creating a token, write the device's files and keys to this "+
		"tar archive")
	cmd.Flags().StringVar(&known, "preauthorize", "", "add the device with this id and the public KEY in the "+
		"argument to the list of agents")
	return cmd
}

// revokeOpenToken revokes the token that any device can use to join.
func revokeOpenToken(cmd *cobra.Command, l *cli.ConfigLoader) error {
	c, err := newAPIClient(l)
	if err == nil {
		err = c.Call(cmd.Context(), http.MethodPost, "/v1/tokens/close", api.EmptyBody{}, nil)
	}
	if err == nil {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "the open token was removed; each device now needs its own token")
	}
	return err
}

// admitDevice asks the coordinator to add a device to the list of agents.
func admitDevice(cmd *cobra.Command, l *cli.ConfigLoader, id string,
	a coordinatord.AdmitRequest) (coordinatord.AdmitResponse,
	error) {
	var done coordinatord.AdmitResponse
	c, err := newAPIClient(l)
	if err == nil {
		err = c.Call(cmd.Context(), http.MethodPost, "/v1/devices/"+url.PathEscape(id)+"/admit", a, &done)
	}
	return done, err
}

func admitKnownKey(cmd *cobra.Command, l *cli.ConfigLoader, id, key string) error {
	public, err := keys.ParsePublic(key)
	if err != nil {
		return err
	}
	if _, err := admitDevice(cmd, l, id, coordinatord.AdmitRequest{SigningPublicKey: public}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s was added to the list of agents with this key and can now connect\n",
		id)
	return err
}

// kitInstallDir is the folder on a device in which the files of a device kit (archive with keys and configuration) are
// installed.
const kitInstallDir = "/etc/agentd"

// writeDeviceKit generates a device's keys on this machine and writes the device's files into an archive.
func writeDeviceKit(cmd *cobra.Command, l *cli.ConfigLoader, id wire.AgentID, path string) error {
	k, err := join.NewDeviceKeys()
	if err != nil {
		return err
	}
	own, client, err := k.Public()
	if err != nil {
		return err
	}
	done, err := admitDevice(cmd, l, string(id), coordinatord.AdmitRequest{SigningPublicKey: own[:],
		TLSPublicKey: client[:]})
	if err != nil {
		return err
	}
	archive, err := deviceKitArchive(id, &k, done.EncodedAdmission)
	if err == nil {
		err = store.LocalDisk.WriteFileDurably(path, archive, 0o600)
	}
	if err != nil {
		return errors.Join(err,
			fmt.Errorf("%s was added to the list of agents, but its new key could not be saved: run coordinator "+
				"devices revoke %[1]s", id))
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "WARNING: %s contains the private keys of %s. Anyone who can read this "+
		"file can act as that device: transfer it by hand, then delete it.\nOn the device, run as root, and then set "+
		"data.csv in %[3]s/agentd.yaml:\n  tar -C %[3]s -xf %[1]s\n", path, id, kitInstallDir)
	return err
}

// deviceKitArchive returns the archive for a device that the coordinator has admitted. admission is the coordinator's
// encoded answer.
func deviceKitArchive(id wire.AgentID, k *join.DeviceKeys, admission []byte) ([]byte, error) {
	answer, err := wire.DecodeEnrolmentAnswer(admission)
	if err != nil {
		return nil, err
	}
	root, err := wire.DecodeAndVerifyRootDocument(answer.RootDocument)
	if err != nil {
		return nil, err
	}
	a, err := join.CheckAdmission(&answer, root.RootPin(), k)
	if err != nil {
		return nil, err
	}
	files, err := join.DeviceFiles(k, a)
	if err != nil {
		return nil, err
	}
	var passed []string
	files["agentd.yaml"], err = config.EditConfigText("agentd.yaml", packaging.AgentConfig,
		join.AgentConfigValues(kitInstallDir, id, a, &passed), settings.UnvalidatedAgentDefaults)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	err = writeTar(&archive, files)
	return archive.Bytes(), err
}

// writeTar writes files into a tar archive. Key files are readable by their owner only.
func writeTar(w io.Writer, files map[string][]byte) error {
	t := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(files[name])), Mode: 0o644}
		if strings.HasSuffix(name, ".key") {
			h.Mode = 0o600
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(files[name]); err != nil {
			return err
		}
	}
	return t.Close()
}
