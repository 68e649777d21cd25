package coordinatord

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/round"
)

// AppliedTask is the API response that describes the task in effect and the state of the run.
type AppliedTask struct {
	Version         uint64                `json:"version"`
	AppliedAt       time.Time             `json:"at"`     // time when the task was applied
	TaskYAML        string                `json:"text"`   // YAML with the keys task, round, mesh and predict
	OperatorCommand round.OperatorCommand `json:"course"` // last command: go, pause or stop
	Phase           string                `json:"phase"`  // current phase of the run
	Run             uint64                `json:"run"`
	// version of the current model; absent before the first one
	ModelVersion *uint64      `json:"model,omitempty"`
	PendingTask  *PendingTask `json:"next,omitempty"`
}

// PendingTask is a task that takes effect after the current round.
type PendingTask struct {
	Version      uint64    `json:"version"`
	RequestedAt  time.Time `json:"at"`
	TaskYAML     string    `json:"text"`
	NewRun       bool      `json:"new_run"`
	InitialModel string    `json:"from,omitempty"`
}

// ApplyRequest asks the coordinator to apply a task.
type ApplyRequest struct {
	TaskFileName string `json:"name,omitempty"` // file name for errors
	// TaskYAML is the text of a coordinator.yaml or of its applied settings. If it is empty, the current task is kept,
	// for example to start a new run.
	TaskYAML string `json:"text,omitempty"`
	NewRun   bool   `json:"new_run,omitempty"` // begin a new run, from an initial model unless InitialModel is set
	// InitialModel starts a new run from an existing model: RUN/VERSION, VERSION, "present" or a file path.
	InitialModel string `json:"from,omitempty"`
	AbandonRound bool   `json:"now,omitempty"`   // abandon the current round
	DryRun       bool   `json:"check,omitempty"` // only report the effect
}

// ApplyPreview describes the effect of an ApplyRequest.
type ApplyPreview struct {
	// version of the task; the current one if there are no changes
	Version          uint64                           `json:"version"`
	Changes          []coordinatorsettings.Change     `json:"changes"`
	Effect           coordinatorsettings.ChangeEffect `json:"effect,omitempty"`
	MissingFlags     string                           `json:"needs,omitempty"` // flags that the command still needs
	NewRun           bool                             `json:"new_run"`
	InitialModel     string                           `json:"from,omitempty"`
	WaitsForRoundEnd bool                             `json:"waits"` // takes effect only after the current round
}

// RunControlRequest requests that the run pauses, stops or continues.
type RunControlRequest struct {
	AbandonRound bool `json:"now,omitempty"` // abandon the current round
}

// Routes returns the API routes of the federation.
func (f *Federation) Routes() []api.Route {
	return append([]api.Route{
		f.statusTracker.StatusRoute(), f.devicesRoute(), f.bootCounterResetRoute(),
		api.GetRoute("/v1/task", "Return the applied task.", func(*http.Request) (AppliedTask, error) {
			return f.AppliedTask(),
				nil
		}),
		api.PostRoute("/v1/task", "Apply a task, or preview its effect.",
			func(r *http.Request, a ApplyRequest) (ApplyPreview, error) { return f.ApplyTask(r.Context(), a) }),
		f.operatorCommandRoute("pause", round.CommandPause, "Pause the run: start no rounds until the run is resumed."),
		f.operatorCommandRoute("resume", round.CommandContinue, "Resume the run."),
		f.operatorCommandRoute("stop", round.CommandStop, "End the run and keep its model."),
		api.GetRoute("/v1/runs", "List the runs that have models, newest last.",
			func(*http.Request) ([]runs.RunInfo, error) { return runs.ListStoredRuns(f.stateDir) }),
		api.GetRoute("/v1/runs/{run}/models", "List the models of a run.", f.listModels),
		f.modelRoute(),
		api.GetRoute("/v1/runs/{run}/models/{version}/diff/{other}", "Compare two models of a run, tensor by tensor.",
			f.compareModels).WithName(),
		f.historyRoute(), f.historySampleRoute(), f.statusTracker.NeighboursRoute(), f.auditRoute(),
		f.enrolmentRoute(),
		api.StreamRoute("/v1/backup", "Return a backup of the state folder as a tar archive.", "application/x-tar",
			func(w io.Writer, r *http.Request) error {
				c, err := f.awaitCoordinator(r.Context())
				if err != nil {
					return err
				}
				return c.Backup(r.Context(), w)
			}).WithRole(api.RoleOperate),
	}, f.enrolmentRoutes()...)
}

func (f *Federation) operatorCommandRoute(name string, course round.OperatorCommand, summary string) api.Route {
	return api.PostRoute("/v1/task/"+name, summary,
		func(r *http.Request, s RunControlRequest) (AppliedTask, error) {
			return f.ApplyOperatorCommand(r.Context(), course, s.AbandonRound)
		})
}

// AppliedTask returns the task in effect and the state of the run, for the API.
func (f *Federation) AppliedTask() AppliedTask {
	f.commandMu.Lock()
	defer f.commandMu.Unlock()
	return f.appliedTaskLocked()
}

func (f *Federation) appliedTaskLocked() AppliedTask {
	c := &f.control
	t := AppliedTask{Version: c.Task.Version, AppliedAt: c.Task.AppliedAt, TaskYAML: string(c.Task.TaskYAML),
		OperatorCommand: c.OperatorCommand,
		Phase:           string(f.statusTracker.Phase())}
	if t.OperatorCommand == "" {
		t.OperatorCommand = round.CommandContinue
	}
	if _, record, err := runs.OpenModelsOfCurrentRun(f.stateDir); err == nil {
		if t.Run = uint64(record.Run); record.Plan.BaseModel.IsSet() {
			version := uint64(record.Plan.BaseModelVersion)
			t.ModelVersion = &version
		}
	}
	if n := c.NextTask; n != nil {
		t.PendingTask = &PendingTask{n.Version, n.AppliedAt, string(n.TaskYAML), n.NewRun, n.StartModel}
	}
	return t
}

// ApplyTask applies a task, usually after the current round. With DryRun it only returns the effect.
func (f *Federation) ApplyTask(ctx context.Context, a ApplyRequest) (ApplyPreview, error) {
	f.commandMu.Lock()
	defer f.commandMu.Unlock()
	applied, o, err := f.previewTaskApply(a)
	if err != nil || a.DryRun || !o.NewRun && len(o.Changes) == 0 && f.control.NextTask == nil {
		return o, err
	}
	if o.MissingFlags != "" {
		return o, api.Conflict("the change requires a %s: add %s", o.Effect, o.MissingFlags)
	}
	next := &coordinator.AppliedTask{Version: o.Version, AppliedAt: time.Now(), TaskYAML: applied.YAML(),
		NewRun:     o.NewRun,
		StartModel: o.InitialModel, AbandonsRound: a.AbandonRound}
	if !o.NewRun && len(o.Changes) == 0 {
		next = nil // cancels the pending task
	}
	control := f.control
	control.NextTask = next
	if err := f.commitOperatorControl(ctx, control); err != nil || next == nil {
		f.statusTracker.SetNextTaskVersion(0)
		return o, err
	}
	f.statusTracker.SetNextTaskVersion(next.Version)
	return o, f.notifyCoordinator(ctx, func(ctx context.Context, c *coordinator.Coordinator) error {
		return c.StopBetweenRounds(ctx, a.AbandonRound)
	})
}

// previewTaskApply checks a request and returns its effect.
func (f *Federation) previewTaskApply(a ApplyRequest) (coordinatorsettings.AppliedSettings, ApplyPreview, error) {
	phase := f.statusTracker.Phase()
	o := ApplyPreview{Version: f.control.Task.Version, NewRun: a.NewRun || a.InitialModel != "",
		InitialModel:     a.InitialModel,
		WaitsForRoundEnd: !a.AbandonRound && coordinator.IsRoundOpen(phase), Changes: []coordinatorsettings.Change{}}
	applied := f.applied
	if a.TaskYAML != "" {
		var err error
		if applied, err = f.settings().ReadApplied(a.TaskFileName, []byte(a.TaskYAML)); err != nil {
			return applied, o, err
		}
	}
	changes, effect := coordinatorsettings.DiffApplied(f.applied, applied)
	o.Changes, o.Effect = append(o.Changes, changes...), effect
	if o.NewRun || len(changes) > 0 {
		o.Version = max(o.Version, f.pendingTaskVersion()) + 1
	}
	if err := f.checkTaskFeasible(applied, o); err != nil {
		return applied, o, err
	}
	switch {
	case o.NewRun:
	case effect == coordinatorsettings.EffectNewRunFromModel:
		o.MissingFlags = "--from present, --from MODEL, or --new-run for an initial model"
	case effect == coordinatorsettings.EffectNewRunFromInitial:
		o.MissingFlags = "--new-run for an initial model, or --from MODEL for a model that fits the task"
	}
	return applied, o, nil
}

func (f *Federation) pendingTaskVersion() uint64 {
	if f.control.NextTask == nil {
		return 0
	}
	return f.control.NextTask.Version
}

// checkTaskFeasible checks that the graph of mixing agents can be built and that a model fits the task. The text of the
// task alone does not show this.
func (f *Federation) checkTaskFeasible(a coordinatorsettings.AppliedSettings, o ApplyPreview) error {
	s := f.settings().WithApplied(a)
	cfg, err := s.CoordinatorConfig()
	if err != nil {
		return err
	}
	if f.o.NewMeshBuilder != nil {
		if _, err := f.o.NewMeshBuilder(s); err != nil {
			return err
		}
	}
	if cfg.StartModel = o.InitialModel; cfg.StartModel == "" {
		return nil
	}
	if err := coordinator.CheckStartModel(cfg); err != nil {
		return api.Conflict("cannot begin a run from this model: %v", err)
	}
	return nil
}

// commitOperatorControl saves an operator's decision to disk and puts it into effect.
func (f *Federation) commitOperatorControl(ctx context.Context, c coordinator.OperatorDecisions) error {
	if err := c.Save(f.stateDir); err != nil {
		return err
	}
	f.control = c
	return f.publishStateToReplicas(ctx)
}

// ApplyOperatorCommand pauses, stops or continues the run, and saves the command.
func (f *Federation) ApplyOperatorCommand(ctx context.Context, course round.OperatorCommand, now bool) (AppliedTask,
	error) {
	f.commandMu.Lock()
	defer f.commandMu.Unlock()
	over := func() bool { return f.statusTracker.Phase() == round.CoordinatorFinished && f.control.NextTask == nil }
	finished := api.Conflict("the run is finished: raise the limit that ended it, such as round.rounds, with " +
		"`coordinator task set KEY=VALUE`, or begin a new run with `coordinator task apply --new-run`")
	switch {
	case over() && f.control.OperatorCommand != round.CommandStop:
		return f.appliedTaskLocked(), finished
	case over() && course == round.CommandPause:
		return f.appliedTaskLocked(), api.Conflict("cannot pause: the run is stopped")
	}
	control := f.control
	control.OperatorCommand = course
	if err := f.commitOperatorControl(ctx, control); err != nil {
		return f.appliedTaskLocked(), err
	}
	err := f.notifyCoordinator(ctx, func(ctx context.Context,
		c *coordinator.Coordinator) error {
		return c.SetOperatorCommand(ctx, course, now)
	})
	// continuing is useless if a stop rule is already met
	if err == nil && course == round.CommandContinue && over() {
		err = finished
	}
	return f.appliedTaskLocked(), err
}

// notifyCoordinator passes a decision to the running coordinator. If none is running, the next one reads the decision
// at its start.
func (f *Federation) notifyCoordinator(ctx context.Context, do func(context.Context,
	*coordinator.Coordinator) error) error {
	f.mu.Lock()
	c, changed := f.currentCoordinator, f.coordinatorChanged
	f.mu.Unlock()
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, daemon.CommandTimeout)
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := do(ctx, c)
	switch {
	case f.runningCoordinator() != c:
		return nil
	case err != nil:
		return fmt.Errorf("the change is saved and takes effect when the coordinator responds again: %w", err)
	}
	return nil
}

// runningCoordinator returns the running coordinator, or nil between two coordinators.
func (f *Federation) runningCoordinator() *coordinator.Coordinator {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.currentCoordinator
}
