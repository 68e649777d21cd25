package main

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/setup"
	"github.com/fedmesh/fedmesh/spec"
)

func initCommand() *cobra.Command {
	var f initWizard
	cmd := &cobra.Command{
		Use: "init [NAME]", Short: "Create the configuration and the key of a new federation",
		Args: cli.ArgsCheckWithUsageError(cobra.MaximumNArgs(1)),
		Long: `Create the configuration and the key of a new federation.

The command writes coordinator.yaml, the coordinator's key, an empty list of devices
(agents.keys), and agentd.yaml, the common configuration of the devices: each device
adds only its id and its data. With --from, the command derives the columns and the
kind of task from a CSV file of a device: the last numeric column is the target, and
all other numeric columns are features, except times. --from also accepts the file
coordinator.discovered.yaml of "agentd discover --write". On a terminal, the command
asks for all values that no flag sets.

With a broker over TLS (mqtts://), devices join with tokens ("coordinator enrol").
The folder then also contains the root key (root.key), which signs only the root
document (root); a certificate authority, with certificates for the coordinator and
the broker; and files for Mosquitto. Move root.key to a machine without a network.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				f.FederationName = args[0]
			}
			f.isRobustFlagSet = cmd.Flags().Changed("robust")
			var q *terminalPrompt
			if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
				q = &terminalPrompt{input: in, output: cmd.OutOrStdout()}
			}
			return f.createFederation(cmd.OutOrStdout(), q)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", ".", "folder for the created files; "+setup.PackagedConfigDir+" if the service "+
		"was installed by a package")
	flags.BoolVar(&f.overwritesFiles, "force", false,
		"replace existing configuration files; an existing key and list of agents are kept")
	flags.StringVar(&f.BrokerURL, "broker", "", "URL of the broker (default "+defaultAnswers.BrokerURL+")")
	flags.StringVar(&f.CoordinatorURL, "join", "",
		"https://HOST:PORT at which devices reach this machine to join (default: the broker's host, port 8884)")
	flags.StringVar(&f.csvSamplePath, "from", "", "CSV file of a device, from which the columns and the kind of "+
		"model are derived, or coordinator.discovered.yaml")
	flags.StringSliceVar(&f.Features, "features", nil, "input columns")
	flags.StringVar(&f.Target, "target", "", "column to predict")
	flags.StringVar((*string)(&f.Model), "model", "", "model kind: "+strings.Join(setup.ModelKinds(),
		", ")+
		", or autoencoder, which has no target (default: derived from the target column)")
	flags.IntVar(&f.ClassCount, "classes", 0, "number of classes, for softmax or for an mlp that predicts classes; "+
		"the target column contains class numbers from 0")
	flags.StringVar((*string)(&f.Algorithm), "algorithm", "", "training algorithm: fedavg, or feddec, in which "+
		"neighbours also exchange parameters (default fedavg)")
	flags.BoolVar(&f.UsesRobustAggregation, "robust", false,
		"limit the influence of a single device on the model; also reduces the influence of honest devices with "+
			"unusual data (docs/ROBUSTNESS.md)")
	flags.StringArrayVar(&f.DeviceKeys, "device", nil, `"ID KEY" of a device, with the key that "agentd key new" has `+
		"printed; may be repeated")
	flags.IntVar(&f.DeviceCount, "agents", 0,
		fmt.Sprintf("number of devices in the federation (default: the number of flags --device, or %d)",
			defaultAnswers.DeviceCount))
	return cmd
}

// defaultAnswers contains the answers that are used if neither a flag nor the user gives an answer.
var defaultAnswers = setup.Answers{FederationName: "air", BrokerURL: "tcp://127.0.0.1:1883", Algorithm: spec.FedAvg,
	DeviceCount: 5}

// initWizard collects the settings of a new federation from flags and prompts.
type initWizard struct {
	setup.Answers
	dir, csvSamplePath string
	overwritesFiles    bool
	isRobustFlagSet    bool // true if the flag --robust was given
	sample             *setup.CSVSample
}

// createFederation creates a federation. q is nil if no terminal is available.
func (f *initWizard) createFederation(out io.Writer, q *terminalPrompt) error {
	if err := f.completeAnswers(q); err != nil {
		return err
	}
	if err := f.Validate(); err != nil {
		return cli.UsageErrorf("%w", err)
	}
	files, err := setup.WriteFederation(f.dir, &f.Answers, f.sample, f.overwritesFiles)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, f.nextStepsText(files))
	return err
}

func (f *initWizard) completeAnswers(q *terminalPrompt) (err error) {
	q.askText("Name of the federation", &f.FederationName, defaultAnswers.FederationName)
	q.askText("Broker", &f.BrokerURL, defaultAnswers.BrokerURL)
	if len(f.Features) == 0 || f.Target == "" && f.Model.HasTarget() {
		q.askText("CSV file of a device, from which to read the column names (press Enter for none)", &f.csvSamplePath,
			"")
	}
	if f.DeviceCount == 0 {
		f.DeviceCount = len(f.DeviceKeys)
	}
	if setup.IsDiscoveredTask(f.csvSamplePath) {
		if f.Discovered, err = setup.ReadDiscoveredTask(f.csvSamplePath, f.Features, f.Target); err != nil {
			return err
		}
		f.Features, f.Target = f.Discovered.Features, f.Discovered.Target
	} else if f.csvSamplePath != "" {
		if f.sample, err = setup.ReadSample(f.csvSamplePath); err != nil {
			return err
		}
		q.print("Numeric columns: %s\n", strings.Join(f.sample.NumericColumns, ", "))
	}
	if err := f.askColumns(q); err != nil {
		return err
	}
	kind := spec.ModelLinear
	classes := 0
	if f.sample != nil && f.Model.HasTarget() {
		if kind, classes, err = f.sample.GuessModelKind(f.Target, f.Features); err != nil {
			return err
		}
	}
	q.askText("Model: "+spec.JoinWithOr(setup.ModelKinds()), (*string)(&f.Model), string(kind))
	if f.ClassCount == 0 && (f.Model == spec.ModelSoftmax || f.Model == spec.ModelMLP) {
		f.ClassCount = classes
	}
	if f.Model == spec.ModelSoftmax {
		q.askNumber("Classes", &f.ClassCount, classes)
	}
	q.askText("Algorithm: fedavg or feddec", (*string)(&f.Algorithm), string(defaultAnswers.Algorithm))
	q.askNumber("Number of devices", &f.DeviceCount, defaultAnswers.DeviceCount)
	if !f.isRobustFlagSet {
		q.askYesNo("Limit the influence of a single device on the model? This also reduces the influence of honest "+
			"devices with unusual data",
			&f.UsesRobustAggregation)
	}
	return q.failure()
}

// askColumns asks the user for the target column and then for the features.
func (f *initWizard) askColumns(q *terminalPrompt) error {
	target, given := "", f.Features
	if f.sample != nil {
		target = f.sample.NumericColumns[len(f.sample.NumericColumns)-1]
	}
	if f.Model.HasTarget() {
		q.askText("Target: the column to predict", &f.Target, target)
	}
	var features []string
	var err error
	if f.sample != nil {
		if features, err = f.sample.ResolveFeatureColumns(f.Target, given); err != nil {
			return err
		}
	}
	names := strings.Join(given, ",")
	q.askText("Features: input columns, separated by commas", &names, strings.Join(features, ","))
	f.Features = nil
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name != "" {
			f.Features = append(f.Features, name)
		}
	}
	if f.sample != nil {
		_, err = f.sample.ResolveFeatureColumns(f.Target, f.Features)
	}
	return err
}

// nextStepsText returns a description of the written files and the commands to run next.
func (f *initWizard) nextStepsText(files setup.FederationFiles) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\nCreated files: %s, %s, %s, %s\n", f.Summary(), files.CoordinatorConfig, files.CoordinatorKey,
		files.AgentList,
		files.AgentConfig)
	if f.sample != nil && len(f.sample.OtherColumns) > 0 {
		fmt.Fprintf(&b, "Columns that are not used because they contain texts or times: %s\n",
			strings.Join(f.sample.OtherColumns, ", "))
	}
	if f.sample != nil && f.sample.TimeColumn != "" {
		fmt.Fprintf(&b, "The column %s is used as the time of each row (data.time)\n", f.sample.TimeColumn)
	}
	here := []string{"127.0.0.1", "localhost", "::1"}
	if u, err := url.Parse(f.BrokerURL); err == nil && slices.Contains(here, u.Hostname()) {
		fmt.Fprintf(&b,
			"The broker is on this machine: for devices on other machines, set broker.url in %s to this machine's "+
				"network name\n",
			files.AgentConfig)
	}
	if files.RootKey != "" {
		b.WriteString(f.nextJoinStepsText(files))
		return b.String()
	}
	deviceConfig, deviceKey, startDevice := "agentd.yaml", "agent.key", "agentd run --config agentd.yaml --set id=ID"
	startHere := os.Args[0] + " run --config " + files.CoordinatorConfig
	if f.Discovered == nil {
		startDevice += " --set data.csv=FILE"
	}
	if f.usesPackagePaths(files) {
		deviceConfig, deviceKey, startDevice = "/etc/agentd/agentd.yaml", "/etc/agentd/agent.key",
			"systemctl start agentd"
		startHere = "systemctl start coordinator"
		fmt.Fprintf(&b, "\nOn each device, after copying %s to %s and setting id", files.AgentConfig, deviceConfig)
		if f.Discovered == nil {
			b.WriteString(" and data.csv")
		}
		b.WriteString(" in it:\n")
	} else {
		b.WriteString("\nOn each device, in the folder of its copy of agentd.yaml:\n")
	}
	if f.Discovered != nil {
		fmt.Fprintf(&b, "  cat agentd.discovered.yaml >> %s\n", deviceConfig)
	}
	if len(f.DeviceKeys) > 0 {
		fmt.Fprintf(&b, "  %s\nHere:\n  %s\n", startDevice, startHere)
		return b.String()
	}
	fmt.Fprintf(&b,
		"  agentd key new %s\n  %s\nHere, once for each device with the key that it has printed, then start "+
			"the coordinator:\n  echo \"ID KEY\" >> %s\n  %s\n", deviceKey, startDevice, files.AgentList, startHere)
	return b.String()
}

// nextJoinStepsText returns a description of the commands to run next if devices join with tokens.
func (f *initWizard) nextJoinStepsText(files setup.FederationFiles) string {
	start := "systemctl enable --now coordinator"
	config, follow := "", "  systemctl enable --now fedmesh-acl.path\n"
	if !f.usesPackagePaths(files) {
		follow = "and again whenever devices have joined:\n  cp " +
			filepath.Join(filepath.Dir(files.CoordinatorConfig), "state", "acl") + " /etc/mosquitto/acl && systemctl " +
			"reload mosquitto\n"
		start = os.Args[0] + " run --config " + files.CoordinatorConfig
		config = " --config " + files.CoordinatorConfig
	}
	return fmt.Sprintf(`Move %s to a machine without a network: it is needed only for a new root document.

For the broker, as root on its machine, unless it already has a configuration (packaging/mosquitto):
  cp -r %s/. /etc/mosquitto/
  install -D -m 644 -t /etc/systemd/system/mosquitto.service.d %[2]s/mosquitto.service.d/fedmesh.conf
  chown -R mosquitto /etc/mosquitto/certs
  systemctl daemon-reload
  systemctl restart mosquitto
and, if untrusted machines can reach the broker, follow the first lines of %[2]s/fedmesh.nft
%[6]sHere, once:
  %[3]s
Here, for each device; this prints the command for the device:
  %[4]s enrol%[5]s --device ID
`, files.RootKey, files.MosquittoDir, start, os.Args[0], config, follow)
}

// usesPackagePaths reports whether the files are at the paths that the packages' services use.
func (f *initWizard) usesPackagePaths(files setup.FederationFiles) bool {
	return filepath.Dir(files.CoordinatorConfig) == setup.PackagedConfigDir
}
