package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/store"
)

func modelCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the stored models of the agent, newest last",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs)}
	use := &cobra.Command{Use: "use NUMBER|newest",
		Short: "Select a stored model for predictions, or switch back to the newest one",
		Long: "Select a stored model for predictions. The agent does not switch to new models until `model use " +
			"newest`. The agent may be running; it applies the change within 10 seconds.",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1))}
	rollback := &cobra.Command{Use: "rollback",
		Short: "Select the model before the current one for predictions",
		Args:  cli.ArgsCheckWithUsageError(cobra.NoArgs)}
	for cmd, do := range map[*cobra.Command]func(*cobra.Command, *modelfile.KeptModels, []string) error{
		list: listModels, use: pinModel, rollback: rollBackModel,
	} {
		var in modelFolderFlags
		in.addFlags(cmd)
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			return in.withKeptModels(cmd != list, func(k *modelfile.KeptModels) error { return do(cmd, k, args) })
		}
	}
	return cli.GroupCommand("model", "List the agent's stored models, or select one of them for predictions", list,
		use,
		rollback)
}

// modelFolderFlags are the flags that select an agent's model folder.
type modelFolderFlags struct {
	configLoader cli.ConfigLoader
	federation   federationFlag
}

func (f *modelFolderFlags) addFlags(cmd *cobra.Command) {
	f.configLoader.AddFlags(cmd, program)
	f.federation.addToCommand(cmd)
}

// stateDir returns the agent's state folder.
func (f *modelFolderFlags) stateDir() (string, error) {
	s := uncheckedSettings(settings.DefaultAgent())
	if err := settings.Load(&s, program, f.configLoader.Path, f.configLoader.Overrides); err != nil {
		return "", err
	}
	m, err := f.federation.namedFederation((*settings.Agent)(&s))
	if err != nil {
		return "", err
	}
	return m.FederationFolder(), nil
}

// withKeptModels calls do with the agent's kept models. If locked is true, it holds the lock of the models during the
// call.
func (f *modelFolderFlags) withKeptModels(locked bool, do func(*modelfile.KeptModels) error) (err error) {
	dir, err := f.stateDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(modelfile.ModelLockDir(dir)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w in %s: the agent keeps models only if predict.keep is above 0 in its configuration",
			store.ErrNoModel, dir)
	}
	k, err := modelfile.OpenKeptModels(store.LocalDisk, dir)
	if err != nil {
		return err
	}
	if locked {
		lock, err := store.LockStateFolder(modelfile.ModelLockDir(dir))
		if errors.Is(err, store.ErrLocked) {
			return fmt.Errorf("the agent is storing a new model: try again (%w)", err)
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Unlock()) }()
	}
	return do(k)
}

func listModels(cmd *cobra.Command, k *modelfile.KeptModels, _ []string) error {
	all, err := k.List() // after an error, all still contains the intact models
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "NUMBER\tMODEL\tTASK\tBYTES\tHASH\n")
	for _, m := range all {
		note := ""
		switch {
		case m.IsInUse && k.IsPinned():
			note = "\tin use, pinned"
		case m.IsInUse:
			note = "\tin use"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%.32s%s\n", m.InstallNumber, m.Name(), m.Metadata["task"], m.FileBytes,
			m.Metadata["hash"], note)
	}
	return errors.Join(err, w.Flush())
}

func pinModel(cmd *cobra.Command, k *modelfile.KeptModels, args []string) error {
	number, err := strconv.ParseUint(args[0], 10, 64)
	if args[0] != "newest" && (err != nil || number == 0) {
		return cli.UsageErrorf("unknown model %q: specify a NUMBER from `model list`, or newest", args[0])
	}
	if err := k.Activate(number); err != nil {
		return err
	}
	if number == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "the agent now uses the newest model and switches to new models again")
		return nil
	}
	return printPinnedModel(cmd, number)
}

func rollBackModel(cmd *cobra.Command, k *modelfile.KeptModels, _ []string) error {
	number, err := k.Rollback()
	if err != nil {
		return err
	}
	return printPinnedModel(cmd, number)
}

func printPinnedModel(cmd *cobra.Command, number uint64) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(),
		"the agent now uses model %d and does not switch to new models until `%s model use newest`\n", number, program)
	return err
}
