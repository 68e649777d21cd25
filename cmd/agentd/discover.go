package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/data/discover"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/mqtt"
)

// siteListener configures a survey of the site's broker.
type siteListener struct {
	broker   settings.ReadingsBroker
	filters  []string
	duration time.Duration
	folder   string // folder for the proposal; empty means that no proposal is written
}

func discoverCommand() *cobra.Command {
	var l cli.ConfigLoader
	var listener siteListener
	var url string
	cmd := &cobra.Command{
		Use: "discover", Short: "List the sensors that publish at the site's broker",
		Long: "List the sensors that publish at the site's broker.\n\nThe command subscribes to the topics of " +
			"--filter, recognises Zigbee2MQTT, Tasmota, Shelly, ESPHome, Home Assistant, The Things Network, " +
			"ChirpStack, thin-edge.io, EdgeX, Telegraf, OPC UA PubSub, SenML and Sparkplug B, and prints each number " +
			"that the devices publish. It publishes nothing, and it never prints texts or numbers that may be " +
			"secret. Values that appear only in retained messages have no interval.\n\nWith --write the command " +
			"proposes the sections data and readings of agentd.yaml and the inputs of coordinator.yaml. Delete the " +
			"lines that you do not need. Without --broker the broker is readings.broker of the configuration file.",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, filter := range listener.filters {
				if err := mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, filter); err != nil {
					return cli.UsageErrorf("--filter: %v", err)
				}
			}
			if listener.duration <= 0 {
				return cli.UsageErrorf("--for is %s: it must be positive", listener.duration)
			}
			switch b := &listener.broker; {
			case url != "":
				b.URLs = []string{url}
			case b.Username != "" || b.PasswordFile != "" || b.CAFile != "":
				return cli.UsageErrorf("--username, --password-file and --ca-file require --broker")
			default:
				s, err := loadSettings(&l)
				if err != nil {
					return fmt.Errorf("%w; to use no configuration file, set --broker", err)
				}
				if *b = s.Readings.Broker; len(b.URLs) == 0 {
					return errors.New("readings.broker.url is not set in the configuration file: set --broker")
				}
			}
			if listener.folder != "" {
				if err := checkNewFiles(listener.folder); err != nil {
					return err
				}
			}
			return listener.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	l.AddFlags(cmd, program)
	flags := cmd.Flags()
	flags.StringVar(&url, "broker", "", "URL of the site's broker, such as tcp://gateway:1883")
	flags.StringVar(&listener.broker.Username, "username", "", "user name for --broker")
	flags.StringVar(&listener.broker.PasswordFile, "password-file", "", "file with the password for --broker")
	flags.StringVar(&listener.broker.CAFile, "ca-file", "", "file with the certificate authority of --broker")
	flags.DurationVar(&listener.duration, "for", time.Minute, "time for which the command listens")
	flags.StringArrayVar(&listener.filters, "filter", []string{"#"}, "topic filter; may be repeated")
	flags.StringVar(&listener.folder, "write", "", "folder for agentd.discovered.yaml and coordinator.discovered.yaml")
	return cmd
}

// run listens to the broker, prints the series and writes the proposal.
func (l *siteListener) run(ctx context.Context, out, errs io.Writer) error {
	survey, dropped, err := l.listen(ctx, errs)
	if err != nil {
		return err
	}
	all := survey.Series()
	printSeries(out, all)
	fmt.Fprintf(out, "\n%d messages on %d topics within %s, %d values\n", survey.Messages, survey.Topics(), l.duration,
		len(all))
	rejected := survey.Rejections()
	for _, name := range slices.Sorted(maps.Keys(rejected)) {
		fmt.Fprintf(out, "%d messages of %s could not be decoded\n", rejected[name], name)
	}
	if n := survey.Hidden(); n > 0 {
		fmt.Fprintf(out, "%d values are not shown, because their names suggest a secret\n", n)
	}
	if survey.Skipped > 0 {
		fmt.Fprintf(out, "%d messages or values were left out: the survey stores %d topics and %d values, and ignores "+
			"payloads above 64 KiB and names above 256 bytes; select topics with --filter\n", survey.Skipped,
			discover.MaxTopics,
			discover.MaxSeries)
	}
	if dropped > 0 {
		fmt.Fprintf(out, "%d messages arrived too fast and were dropped: select topics with --filter\n", dropped)
	}
	if len(all) == 0 {
		return errors.New("no numbers arrived: check the topics with --filter, or listen longer with --for")
	}
	if l.folder == "" {
		return nil
	}
	return l.writeProposal(out, discover.Propose(all, l.broker.URLs[0]))
}

// listen subscribes to the topics and returns the survey and the number of dropped messages.
func (l *siteListener) listen(ctx context.Context, errs io.Writer) (s *discover.Survey, dropped int64, err error) {
	readings := settings.Readings{Broker: l.broker}
	site := readings.SiteBroker()
	o, warning, err := site.SessionOptions(fmt.Sprintf("agentd-discover-%d", os.Getpid()))
	if err != nil {
		return nil, 0, err
	}
	o.Logger = slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if warning != "" {
		o.Logger.Warn(warning)
	}
	var lost atomic.Int64 // number of messages that the session has dropped
	o.ObserveMessage = func(m mqtt.ObservedMessage) {
		if m.IsIncoming && m.IsDropped {
			lost.Add(1)
		}
	}
	conn, err := mqtt.Dial(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	conn.Subscribe(mqtt.AtMostOnce, l.filters...)
	s = discover.New()
	var connected bool
	end := time.NewTimer(l.duration)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return s, lost.Load(), nil
		case <-end.C:
			if !connected {
				return nil, 0, fmt.Errorf("no connection to the broker %s within %s", l.broker.URLs[0], l.duration)
			}
			return s, lost.Load(), nil
		case event := <-conn.Events():
			switch event := event.(type) {
			case mqtt.LinkUp:
				if !connected {
					connected = true
					end.Reset(l.duration)
				}
			case mqtt.SubscriptionRefused:
				return nil, 0, fmt.Errorf("the broker does not allow a subscription to %s: choose permitted topics "+
					"with --filter", event.Filter)
			case mqtt.MessageReceived:
				s.Add(payload.Message{Topic: event.Topic, Payload: event.Payload, IsRetained: event.Retained,
					ReceivedAt: time.Now()})
			}
		}
	}
}

// printSeries prints a table of the series.
func printSeries(out io.Writer, all []*discover.Series) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SYSTEM\tDEVICE\tVALUE\tLAST\tUNIT\tRANGE\tEVERY\tRECENT\tNOTE")
	for _, s := range all {
		interval := "-"
		if s.Interval() > 0 {
			interval = status.FormatDuration(s.Interval())
		}
		span := "-"
		if s.Min < s.Max {
			span = fmt.Sprintf("%.6g…%.6g", s.Min, s.Max)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.6g\t%s\t%s\t%s\t%s\t%s\n", s.System, shorten(s.Device),
			shorten(s.Quantity), s.Last, shorten(s.Unit), span, interval, status.Sparkline(s.Recent),
			strings.Join(seriesNotes(s), ", "))
	}
	_ = w.Flush() // errors are ignored, as for other output of commands
}

// seriesNotes returns remarks about a series: missing values, a value that never changes, or an unknown age of the
// values.
func seriesNotes(s *discover.Series) (notes []string) {
	if s.Missing > 0 {
		notes = append(notes, fmt.Sprintf("%d missing", s.Missing))
	}
	if s.IsFrozen() {
		notes = append(notes, "never changed")
	}
	if s.Live == 0 {
		notes = append(notes, "retained only: its age is unknown")
	}
	return notes
}

// maxPrintedName is the maximum number of characters of a name in the table.
const maxPrintedName = 40

// shorten truncates a name that a device has sent to maxPrintedName characters.
func shorten(name string) string {
	if runes := []rune(name); len(runes) > maxPrintedName {
		return string(runes[:maxPrintedName-1]) + "…"
	}
	return name
}

// Names of the files with the proposal.
const (
	agentProposal       = "agentd.discovered.yaml"
	coordinatorProposal = "coordinator.discovered.yaml"
)

// checkNewFiles checks before the survey that the files of the proposal can be created.
func checkNewFiles(folder string) error {
	if info, err := os.Stat(folder); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder: set --write to a folder", folder)
	}
	for _, name := range []string{agentProposal, coordinatorProposal} {
		path := filepath.Join(folder, name)
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s already exists: remove it, or choose another folder with --write", path)
		}
	}
	return nil
}

// writeProposal writes the proposal to new files.
func (l *siteListener) writeProposal(out io.Writer, p discover.Proposal) error {
	for _, of := range []struct{ name, text string }{
		{agentProposal, p.Agent}, {coordinatorProposal, p.Coordinator},
	} {
		f, err := os.OpenFile(filepath.Join(l.folder, of.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.WriteString(f, of.text)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "wrote %s and %s to %s; delete the lines of values that the model does not need; then create a "+
		"federation with: coordinator init NAME --from %[2]s\n", agentProposal, coordinatorProposal, l.folder)
	return nil
}
