package archtest

import "strings"

const module = "github.com/fedmesh/fedmesh"

// room assigns a floor (layer of the architecture) to one package, or to a package and all its subpackages if the path
// ends in "/...".
type room struct {
	path  string
	floor int  // floor of the package; it may import only packages on lower floors
	pure  bool // true if the package must be pure; see purity_test.go
	why   string
}

// rooms assigns a floor (layer of the architecture) to each package. Add new packages here and in docs/ARCHITECTURE.md.
var rooms = []room{
	{"observe", 1, true, "how an event describes itself: every package that reports events imports it, so it imports " +
		"nothing of ours"},
	{"wire", 1, true, "every byte that leaves a process: both ends must agree on it, so it depends on neither"},
	{"spec", 1, true, "the words of a task and a round: one vocabulary for files, the protocol and the simulator; " +
		"imports nothing of ours"},
	{"codec", 1, true, "how elements are packed: both ends must decode the same bits"},
	{"learner", 1, true, "models and local steps: a result must not depend on where it was computed"},
	{"packaging/...", 1, false,
		"the files we ship, embedded: imports nothing of ours, so that every test can load them"},

	{"task", 2, true, "what a wire.Task means in learner terms: the daemons and the simulator run the same code"},
	{"data", 2, false, "what a source of rows is: the interfaces, their configuration and their reports"},
	{"data/units", 1, true, "conversions between units of measurement"},
	{"data/sparkplug", 1, true, "payloads of Sparkplug B, which data/payload reads and agentd's announcements write"},
	{"data/payload", 2, false, "formats of messages of devices: it knows no broker and no clock"},
	{"data/rows", 2, false, "rows made of lines or readings, in memory or in a file: it knows no source"},
	{"data/survey", 2, false, "a source described for a person: it knows no source"},
	{"data/sources", 2, false, "CSV files, MQTT topics, lines of a command: knows no rounds"},
	{"data/discover", 2, false,
		"values that devices publish, found in their messages: it knows no connection and no clock"},
	{"data/grid", 1, true, "rows made of readings: a device and the coordinator must make the same bits of the same"},
	{"round", 2, true, "the coordinator's machine: the host owns clock, network and disk, so that tests can script it"},
	{"round/agentround", 2, true, "an agent's machine: the same as round, of which it knows nothing"},
	{"round/rule", 2, true, "how updates become the fold: the coordinator and the simulator run the same rules"},
	{"round/rollout", 2, true, "how a model comes into use at the agents: decided by residuals, without a clock"},
	{"round/stop", 2, true, "when a run ends: decided by figures and times that the machine hands it"},
	{"round/evaluation", 2, true, "what agents say of a model: the same in the coordinator and the simulator"},
	{"round/schedule", 2, true, "when rounds are opened: the same as round/stop"},
	{"round/optimizer", 2, true, "how the fold becomes the model's step: the same as round/rule"},
	{"d2d", 2, true, "the mixing machine: the same as round"},
	{"d2d/graph", 2, false, "graphs and spectra need gonum/mat, which no device may link"},
	{"mqtt", 2, false, "sessions over paho: knows topics and bytes, not rounds"},
	{"mqtt/broker", 2, false, "the embedded broker, which only the laboratory links"},
	{"mqtt/broker/acl", 2, false, "who may read and write what: one table, for the embedded broker and for Mosquitto"},
	{"mqtt/transfer", 2, true, "chunked transfer is a protocol machine: loss and reordering must be scriptable"},
	{"store", 2, false, "what is on disk: knows files, not what their bytes mean to a round"},

	{"modelfile/export", 3, false, "a model for programs that are not ours: no device writes one"},
	{"modelfile", 2, false, "a model's file: the coordinator and the agents write it, and whoever predicts reads it"},

	{"host", 2, false, "what the hosts of both programs need: the owner's goroutine, its jobs, the seal on what it " +
		"says; knows no rounds"},

	{"agent/device", 3, false, "what the system tells of the device, and what its owner allows: reads files, knows " +
		"no rounds"},
	{"agent/state", 3, false, "the agent's state folder: one table of its files"},
	{"agent/part", 3, false, "what a capability of the agent is built from: its hooks, and what the agent shares"},
	{"agent/identity", 3, false, "keys and certificates of an agent, and whose messages it accepts: a capability, " +
		"which does not know the agent"},
	{"agent/announcement", 3, false, "whether announcements arrive, and why not: a capability, which does not know " +
		"the agent"},
	{"agent/presence", 3, false, "what an agent publishes about itself, and clones of it: a capability, which does " +
		"not know the agent"},
	{"agent/mesh", 3, false, "how an agent reaches its neighbours: it does not know the agent or its training"},
	{"agent/budget", 3, false, "bytes of the uplink in a month: a capability, which does not know the agent"},
	{"agent/fetch", 3, false, "tasks and models from the broker, for all capabilities: it does not know the agent"},
	{"agent/taskdata", 3, false, "local rows of the announced task, for training, prediction and evaluation"},
	{"agent/predict", 3, false, "models with which the device predicts: when one comes into use, and its forecasts"},
	{"agent/evaluation", 3, false, "base models, evaluated on the rows that the device holds out"},
	{"agent/training", 3, false,
		"local steps on the device's rows: it does not know the agent, or how an update is sent"},
	{"agent/upload", 3, false, "updates on their way to the coordinator: it does not know how they were trained"},
	{"agent", 3, false, "I/O host of an agent: constructs its parts, and performs the effects of the round machine"},
	{"agent/external", 3, false, "programs of the device's owner as trainers, around any trainer"},
	{"lab/slow", 3, false, "a slow device for benches and tests, around any trainer"},
	{"lab/liar", 3, false, "a device that lies, for tests and the laboratory, around any trainer"},
	{"coordinator", 3, false, "I/O host of the coordinator"},
	{"coordinator/cleanup", 3, false, "deletes foreign retained messages: it knows topics, not rounds"},
	{"coordinator/runs", 3, false, "the coordinator's state folder, which commands read beside the daemon"},
	{"coordinator/aggregation", 3, false,
		"the next model from the updates of a round: it knows no agents' messages and no broker"},
	{"coordinator/devices", 3, false, "which messages of which devices count: it knows no rounds"},
	{"coordinator/sealing", 3, false, "secrets of the coordinator, and keys made of them: it knows no rounds"},
	{"coordinator/uploads", 3, false, "updates on their way into a spool: it knows rounds by their numbers"},
	{"coordinator/duplicate", 3, false, "whether another coordinator has this one's key: it knows no rounds"},
	{"coordinator/publish", 3, false, "what a coordinator has the broker retain: it knows blobs, not rounds"},
	{"coordinator/meshplan", 3, false, "who mixes in a round: it knows no eigensolver"},
	{"coordinator/edges", 3, false, "who mixes with whom: needs the eigensolver, which agentd must not link"},
	{"coordinator/audit", 3, false, "who changed what, and whom the coordinator kept out: a chain of hashes on disk"},
	{"coordinator/enrolled", 3, false, "who may take part: the file by which the coordinator looks keys up"},
	{"coordinator/replica", 3, false, "several coordinators, of which one leads: a head with " +
		"compare-and-set, and a folder"},
	{"coordinator/replica/jetstream", 3, false, "that head in NATS: only the coordinator's program links its client"},
	{"coordinator/enrol", 3, false, "how devices come into the list: tokens, certificates, a listener"},
	{"lab/sim", 3, false, "the fast path of experiments: loops around the kernels that the daemons call"},
	{"lab/sim/data", 3, false, "what agents learn from in a simulation: made from a seed, or read from files"},
	{"lab/attack", 2, true, "what liars send: the simulator and the laboratory's agents have one table"},
	{"lab/conservation", 2, true, "the sums of mixing: the world and the tests of d2d share them"},
	{"lab/npy", 1, false, "arrays in numpy's files: it knows a format, not what is in it"},
	{"lab/twin", 3, false, "golden trajectories from a transcription of the documents, and tests that our code " +
		"reproduces them"},
	{"lab/theory", 1, false, "what the documents predict: it imports nothing of ours, so that agreement with the " +
		"simulator means something"},
	{"lab/crowd", 4, false, "a million agents around the machines of both programs: it has only tests"},
	{"lab/world", 4, false, "both programs in virtual time, with faults: it runs their hosts, so it stands above them"},
	{"metrics", 3, false, "how metrics are registered and served, for both programs"},
	{"metrics/agentmetrics", 3, false, "events to Prometheus: the logic below reports events and never calls a metric"},
	{"metrics/coordinatormetrics", 3, false, "the same of the coordinator, and the agents' reports"},

	{"internal/testkit/engine", 3, false, "what coordinators share, in memory, for tests and the world"},
	{"internal/testkit/memory", 2, false, "sessions without a network, for tests and the laboratory"},
	{"internal/testkit/...", 4, false, "starts what tests of any room run on: brokers, machines, finished programs"},
	{"internal/archtest", 4, false, "looks at the house from outside"},
	{"internal/attacks", 4, false, "names the tests of other rooms that try an attack: it has only tests"},
	{"internal/chaos", 4, false, "breaks a federation of finished programs: it has only tests"},
	{"internal/conformance", 4, false, "holds every broker to the same, with the real hosts as its clients"},
	{"internal/interop", 4, false, "runs the finished programs beside a client in another language"},
	{"internal/...", 4, false, "what the programs share: configuration, commands, status, the wiring of the hosts"},

	{"lab/launch/...", 4, false,
		"starts the daemons for the laboratory and for tests: it knows no experiment and no test"},

	{"lab/...", 5, false, "the laboratory: experiments, demonstrations, testbeds, benchmarks on the daemons' own code"},

	{"cmd/...", 6, false, "commands wire the rooms together; nobody imports a command"},
}

// beside lists the imports that are allowed between packages on the same floor.
var beside = []struct{ from, to, why string }{
	{"internal/...", "internal/...", "the commands of a program share its configuration, status and messages"},
	{"internal/testkit/...", "lab/launch", "tests start federations with the same code as the laboratory"},
	{"lab/launch/...", "internal/...", "it runs both daemons from their settings"},
	{"lab/...", "lab/...", "an experiment uses the simulator, a picture and a data set"},
	{"metrics/...", "metrics", "both programs register metrics in the same way"},
	{"metrics/agentmetrics", "agent", "an observer reads the events of the host"},
	{"metrics/agentmetrics", "agent/external", "the same"},
	{"metrics/coordinatormetrics", "coordinator/...", "an observer reads the events of the host"},
	{"coordinator/replica/jetstream", "coordinator/replica", "an engine is written against what it serves"},
	{"agent", "agent/...", "the agent constructs its parts; no part imports the agent"},
	{"agent/...", "agent/part", "a part implements hooks"},
	{"agent/...", "agent/state", "a part keeps its files in the state folder"},
	{"agent/external", "agent/training", "programs are a trainer"},
	{"agent/external", "agent/predict", "a program's predictions are the device's forecasts"},
	{"agent/external", "agent/evaluation", "a program's metrics are those of an evaluation"},
	{"lab/slow", "agent/training", "a decorator is written against the trainer's own types"},
	{"lab/liar", "agent/training", "the same as lab/slow"},
	{"coordinator/edges", "coordinator/meshplan", "it computes meshes"},
	{"coordinator", "coordinator/meshplan", "the host has it plan who mixes"},
	{"coordinator", "coordinator/publish", "the host announces rounds by it"},
	{"coordinator", "coordinator/cleanup", "the host passes it every message first"},
	{"coordinator/cleanup", "coordinator/publish", "it deletes a retained message in the same way"},
	{"coordinator", "coordinator/runs", "the host keeps its runs there"},
	{"coordinator/runs", "coordinator/audit", "a line of the history has the log's head"},
	{"coordinator/runs", "coordinator/publish", "the journal lists the blobs that the broker may retain"},
	{"coordinator", "coordinator/aggregation", "the host has it aggregate each round"},
	{"coordinator/aggregation", "coordinator/runs", "it stores tasks and models in the state folder"},
	{"coordinator/aggregation", "coordinator/publish", "tasks and models are blobs that agents fetch"},
	{"coordinator", "coordinator/duplicate", "the host asks it whether it may work"},
	{"coordinator", "coordinator/sealing", "the host seals and opens by it"},
	{"coordinator/sealing", "coordinator/runs", "the secrets are in the state folder"},
	{"coordinator/enrol", "coordinator/runs", "the tokens are in the state folder"},
	{"coordinator/sealing", "coordinator/enrolled", "a new list of agents may need a new secret"},
	{"coordinator/sealing", "coordinator/publish", "it seals the blobs that are published"},
	{"coordinator", "coordinator/uploads", "the host passes it offers and chunks"},
	{"coordinator/uploads", "coordinator/runs", "the spools are in the state folder"},
	{"coordinator/duplicate", "coordinator/runs", "the epoch is in the state folder"},
	{"coordinator", "coordinator/devices", "the host asks it about each message"},
	{"coordinator/devices", "coordinator/enrolled", "it owns the list of agents"},
	{"coordinator", "coordinator/audit", "the host signs the log's head in each line of the history"},
	{"coordinator", "coordinator/enrolled", "the host asks the list who may take part"},
	{"codec", "wire", "raw elements are the protocol's own"},
	{"codec", "spec", "the table is by the words of files"},
	{"round", "round/evaluation", "the machine pools evaluations"},
	{"round", "round/optimizer", "the configuration of a round names its optimiser"},
	{"round", "round/rollout", "the machine decides about a rollout with it"},
	{"round", "round/rule", "the configuration of a round names its rule"},
	{"round", "round/schedule", "the machine waits for its windows and new rows"},
	{"round", "round/stop", "the machine ends the run by its rules"},
	{"modelfile", "store", "a model's file is a safetensors file, which store reads and writes"},
	{"data/...", "mqtt", "a source subscribes to topics of a site's broker"},
	{"data/...", "store", "what a source collects is kept in a ring on disk"},
	{"data/...", "data", "rows, surveys and sources implement its interfaces"},
	{"data/survey", "data/rows", "a survey judges values by the same rules as rows"},
	{"data/sources", "data/...", "a source makes rows and surveys"},
	{"data/discover", "data/payload", "a survey of a broker decodes the messages"},
	{"host", "mqtt", "the owner waits for the events of a connection"},
	{"data/grid", "spec", "the recipe is in the words of files"},
	{"data/grid", "data/units", "readings are converted to the unit of their input"},
	{"wire", "spec", "words travel as bytes, by one table for each type"},
	{"learner", "spec", "a model is described in the words that files use"},
	{"d2d/graph", "d2d", "a graph hands its links to the mixing kernel; the kernel knows no graphs"},
	{"mqtt/broker/...", "mqtt", "a broker is written against the session's own types"},
	{"internal/testkit/engine", "coordinator/replica", "an engine is written against what it serves"},
	{"internal/testkit/memory", "mqtt", "a transport for tests is written against the session's own types"},
}

// impureImports lists the packages that a pure package must not import. The pattern "p/..." matches p and its
// subpackages, and "p/*" matches only the subpackages.
var impureImports = []struct{ path, why string }{
	{"net/...", "the host does the I/O: return an effect"},
	{"os/...", "the host does the I/O: return an effect"},
	{"syscall", "the host does the I/O: return an effect"},
	{"context", "a machine never blocks, so there is nothing to cancel"},
	{"sync/...", "one goroutine owns a machine: there is nothing to lock"},
	{"log/...", "report an event that describes its log record"},
	{"runtime/*", "the result must not depend on the machine it runs on"},
	{"crypto/rand", "take an io.Reader or a *rand.Rand: a run must be repeatable"},
	{"github.com/prometheus/...", "declare an observe.Metric beside the event"},
	{"github.com/eclipse/...", "return an effect; mqtt sends it"},
}

// unlinked lists packages that a daemon must not link. Only the package named in except may import them, because the
// linker removes the unused code.
var unlinked = []struct{ program, path, except, why string }{
	{"agentd", module + "/mqtt/broker/...", "", "the embedded broker is the laboratory's"},
	{"agentd", module + "/internal/testkit/...", "", "a test's launcher is no product"},
	{"agentd", module + "/lab/...", "", "the laboratory runs the daemons; a daemon must not need it"},
	{"agentd", module + "/coordinator/...", "",
		"a device is no coordinator: who reads one program must not need the other"},
	{"agentd", module + "/internal/coordinatord/...", "", "the same, and the exporters of the history"},
	{"agentd", module + "/metrics/coordinatormetrics", "", "the same"},
	{"agentd", "github.com/nats-io/...", "", "an agent knows the broker, not the engine behind it"},
	{"agentd", "gonum.org/v1/gonum/mat/...", "", "the eigensolver is the coordinator's: a device never calls it"},
	{"agentd", "gonum.org/v1/plot/...", "", "a device draws nothing"},
	{"agentd", "text/template/...", "github.com/spf13/cobra",
		"its reflection keeps dead code alive, megabytes of it; cobra reaches it only from custom templates, which " +
			"we do not set"},
	{"agentd", "html/template/...", "", "its reflection keeps dead code alive, megabytes of it"},
	{"agentd", "github.com/spf13/cobra/doc/...", "", "manual pages are made when packages are"},
	{"agentd", "net/http/pprof", "", "a device serves no profiles: half a megabyte, and a door"},
	{"coordinator", module + "/mqtt/broker", "", "the embedded broker is the laboratory's"},
	{"coordinator", module + "/internal/testkit/...", "", "a test's launcher is no product"},
	{"coordinator", module + "/lab/...", "", "the laboratory runs the daemons; a daemon must not need it"},
	{"coordinator", module + "/agent/...", "", "the coordinator knows agents by their messages only"},
	{"coordinator", module + "/round/agentround", module + "/metrics/coordinatormetrics",
		"the same; the metrics of the fleet have the labels that agents report"},
	{"coordinator", module + "/internal/agentd/...", "", "the same"},
	{"coordinator", module + "/metrics/agentmetrics", "", "the same: the readings that agents report are in metrics"},
	{"coordinator", "gonum.org/v1/plot/...", "", "a server draws nothing"},
	{"coordinator", "github.com/spf13/cobra/doc/...", "", "manual pages are made when packages are"},
}

// matches reports whether a path matches a pattern. The pattern "p/*" matches all paths below p, and "p/..." also
// matches p itself.
func matches(pattern, path string) bool {
	if under, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, under)
	}
	base, tree := strings.CutSuffix(pattern, "/...")
	return path == base || tree && strings.HasPrefix(path, base+"/")
}

// roomOf returns the entry of rooms that matches a package path inside the module.
func roomOf(path string) (room, bool) {
	for _, r := range rooms {
		if matches(r.path, path) {
			return r, true
		}
	}
	return room{}, false
}
