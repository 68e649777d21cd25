package settings_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/spec"
)

// problem is a change that makes a valid configuration invalid, and the expected error.
type problem struct {
	change string // change of the file in the form "old -> new"; if old is empty, new is appended to the file
	want   string // expected text of the error, after the name of the file
}

func checkProblems(t *testing.T, good string, tests []problem, load func(path string) error) {
	t.Helper()
	if err := load(writeFile(t, "good.yaml", good)); err != nil {
		t.Fatalf("the good configuration: %v", err)
	}
	for _, tt := range tests {
		t.Run(tt.change, func(t *testing.T) {
			old, fresh, _ := strings.Cut(tt.change, " -> ")
			text := good + fresh + "\n"
			if old != "" {
				if text = strings.Replace(good, old, fresh, 1); text == good {
					t.Fatalf("%q is not in the file", old)
				}
			}
			path := writeFile(t, "bad.yaml", text)
			err := load(path)
			if err == nil || !strings.HasPrefix(err.Error(), path+tt.want) {
				t.Errorf("error %v\nwant %s%s", err, path, tt.want)
			}
			if strings.Contains(tt.want, ":") && !strings.HasPrefix(tt.want, ": ") &&
				!strings.Contains(fmt.Sprint(err), "^") {
				t.Errorf("no caret in\n%v", err)
			}
		})
	}
}

func TestAgentProblems(t *testing.T) {
	load := func(path string) error {
		s := settings.DefaultAgent()
		return settings.Load(&s, "agentd", path, nil)
	}
	checkProblems(t, agentFile(t), slices.Concat(agentProblems, agentFileProblems(t)), load)
}

// agentFileProblems returns problems whose error text contains the paths of files that the test creates.
func agentFileProblems(t *testing.T) []problem {
	none := filepath.Join(t.TempDir(), "none")
	empty, authority := writeFile(t, "empty", ""), writeCertificate(t)
	return []problem{
		{"  url: -> \n  ca_file: " + authority + "\n  url:",
			`:6:8: broker.url: mqtt: TLS is configured but tcp:// is not encrypted: use tls:// or wss://`},
		{"  url: -> \n  cert_file: " + none + "\n  key_file: " + none + "\n  url:",
			`:5:14: broker.cert_file: open ` + none},
		{"  url: -> \n  ca_file: " + none + "\n  url:", `:5:12: broker.ca_file: open ` + none},
		{"  url: -> \n  ca_file: " + empty + "\n  url:",
			`:5:12: broker.ca_file: ` + empty + ` contains no certificate in PEM format`},
		{"  url: -> \n  password_file: " + empty + "\n  url:", `:3:1: broker.password: mqtt-password: ` + empty +
			` is empty`},
	}
}

// agentProblems lists problems whose error text is always the same.
var agentProblems = []problem{
	{" -> predict: {announce: grafana}",
		`:10:21: predict.announce: must be one of json, homeassistant, thin-edge, sparkplug, but is "grafana"`},
	{" -> predict: {announce: homeassistant}",
		`:10:21: predict.announce: is set, but no forecasts are published: set predict.publish`},
	{" -> predict: {announce_prefix: ha}",
		`:10:28: predict.announce_prefix: is set, but predict.announce is json: remove one of them`},
	{" -> predict: {keep: 1, publish: a, broker: {url: \"tcp://b:1\"}, announce: homeassistant, announce_prefix: a/+}",
		`:10:102: predict.announce_prefix: must not contain + and #, but is "a/+"`},
	{" -> predict: {keep: 1, publish: a, broker: {url: \"tcp://b:1\"}, announce: sparkplug, announce_prefix: a/b}",
		`:10:98: predict.announce_prefix: must not contain / in a Sparkplug group, but is "a/b"`},
	{"federation: air -> federation: Air", `:1:13: federation: federation "Air"`},
	{"id: roof-1 -> id: coordinator", `:2:5: id: agent id "coordinator" is reserved for the coordinator`},
	{"id: roof-1\n -> ", `: id: agent id "": is empty`},
	{" -> state_dir: \"\"", `:10:12: state_dir: must not be empty: set it to a folder that persists across restarts`},
	{"tcp://localhost:1883 -> localhost",
		`:4:8: broker.url: mqtt: broker URL "localhost" is not scheme://host:port, such as tcp://127.0.0.1:1883`},
	{"tcp://localhost:1883 -> [tcp://localhost:1883, tcp://b, c]",
		`:4:31: broker.url[1]: mqtt: broker URL "tcp://b" has no port: add one, usually 1883, or 8883 for TLS`},
	{"tcp://localhost:1883 -> [tcp://localhost:1883, tls://b:8883]",
		`:4:3: broker.url: mqtt: broker URL "tls://b:8883": cannot mix encrypted and unencrypted URLs: use tls:// ` +
			`or wss:// for all or for none`},
	{"tcp://localhost:1883 -> [tcp://a:1883, tcp://a:1883]",
		`:4:3: broker.url: mqtt: duplicate broker URL "tcp://a:1883": remove one`},
	{"tcp://localhost:1883 -> []", `:4:3: broker.url: must not be empty: set it to the URL of the broker, such as ` +
		`tcp://127.0.0.1:1883`},
	{"tcp:// -> http://", `:4:8: broker.url: mqtt: broker URL "http://localhost:1883": unknown scheme "http"`},
	{"localhost:1883 -> localhost",
		`:4:8: broker.url: mqtt: broker URL "tcp://localhost" has no port: add one, usually 1883, or 8883 for TLS`},
	{"localhost:1883 -> me:hush@localhost:1883",
		":4:8: broker.url: mqtt: broker URL \"tcp://me:xxxxx@localhost:1883\" contains credentials: set user name " +
			"and password separately\n  4 |   url: tcp://*******@localhost:1883\n"},
	{"  url: -> \n  prefix: a b\n  url:", `:5:11: broker.prefix: mqtt: topic prefix "a b"`},
	{"  url: -> \n  keep_alive: 1500ms\n  url:",
		`:5:15: broker.keep_alive: must be between 1s and 65535s, in whole seconds, but is 1.5s`},
	{"  url: -> \n  keep_alive: 20s\n  url:",
		`:5:15: broker.keep_alive: must be at least 27s for a link rate of 20kB per second (broker.min_rate), ` +
			`but is 20s: sending a single message may take an eighth of this time`},
	{"  url: -> \n  min_rate: 2kB\n  url:",
		`:3:1: broker.keep_alive: must be at least 4m23s for a link rate of 2kB per second`},
	{"  url: -> \n  min_rate: 999B\n  url:", `:5:13: broker.min_rate: must be between 1kB and 1GB per second, but ` +
		`is 999B`},
	{"  url: -> \n  min_rate: 4GiB\n  url:", `:5:13: broker.min_rate: must be between 1kB and 1GB per second, but ` +
		`is 4GiB`},
	{" -> dns: resolver",
		`:10:6: dns: must be the address and port of a name server, such as 192.0.2.53:53, but is "resolver"`},
	{"  url: -> \n  keep_alive: 0s\n  url:", `:5:15: broker.keep_alive: must be between 1s`},
	{"  url: -> \n  key_file: x\n  url:",
		`:3:1: broker.cert_file: must be set together with broker.key_file, or not at all; set broker.cert_file in ` +
			`the file`},
	{"  url: -> \n  proxy: https://p:1\n  url:", `:5:10: broker.proxy: must be http://host:port`},
	{"  url: -> \n  proxy: http://me:hush@:1\n  url:",
		":5:10: broker.proxy: must be http://host:port, with user:password@ before the host if the proxy requires " +
			"it\n  5 |   proxy: http://*******@:1\n"},
	{"  url: -> \n  password: x\n  password_file: y\n  url:",
		`:5:3: broker.password: cannot be combined with broker.password_file: remove one of the two keys`},
	{"  coordinator_key: " + publicKey(7) + " ->   coordinator_key: \"\"",
		`:7:20: identity.coordinator_key: "" is not an Ed25519 public key`},
	{"  csv: rows.csv ->   csv: \"\"", `:9:8: data.csv: no file is set: set the path of a CSV file with named columns`},
	{"rows.csv -> rows.csv\n  shares: -1", `:10:11: data.shares: invalid value -1: must not be negative`},
	{"rows.csv -> rows.csv\n  shares: 3\n  share: 3", `:11:10: data.share: invalid value 3: must be between 0 and ` +
		`shares - 1 (shares is 3)`},
	{" -> compute: {step_time: -1s}", `:10:22: compute.step_time: must not be negative, but is -1s`},
	{" -> privacy: {min_rows: 0}", `:10:21: privacy.min_rows: must be at least 1, but is 0`},
	{" -> trainers: [{name: x}]", `:10:12: trainers[0].command: must not be empty: set it to a program and its ` +
		`arguments, or set the key`},
	{" -> trainers: [{name: x, command: [y], socket: /run/z}]",
		`:10:44: trainers[0].socket: is "/run/z", but command, dir, env, memory or network is also set`},
	{" -> limits: {max_model: 0B}", `:10:21: limits.max_model: must be between 1 and`},
	{" -> budget: {bytes_per_month: 5MB}",
		`:10:27: budget.bytes_per_month: must be 0 (no limit) or at least 20MB, ` +
			`but is 5MB: an idle connection already uses about 10MB a month`},
	{" -> d2d: {place: {x: 1, y: 2}}",
		`:10:1: d2d.broker.url: traffic between neighbours requires a broker: set either d2d.broker.url, or ` +
			`d2d.uplink: true to use the coordinator's broker`},
	{" -> d2d: {uplink: true, broker: {url: \"tcp://site:1883\"}}", `:10:35: d2d.broker.url: traffic between neighbours requires a broker: set either`},
	{" -> d2d: {broker: {url: \"tcp://localhost:1883\"}}",
		`:10:21: d2d.broker.url: is also the coordinator's broker`},
	{" -> d2d: {broker: {url: [\"tcp://site:1883\", \"tcp://localhost:1883\"]}}",
		`:10:16: d2d.broker.url: is also the coordinator's broker`},
	{" -> d2d: {broker: {url: [\"tcp://site:1883\", site]}}",
		`:10:41: d2d.broker.url[1]: mqtt: broker URL "site" is not`},
	{" -> readings: {broker: {url: \"tcp://site:1883\"}}", `:10:26: readings.broker.url: must be set if data.source ` +
		`is mqtt`},
	{" -> readings: {keep: {bytes: 1MB}}", `:10:26: readings.keep.bytes: must be at least 1MiB, but is 1MB`},
	{" -> readings: {keep: {rows: 10}}", `:10:25: readings.keep.rows: must be 0 (no limit) or at least 1000, ` +
		`but is 10`},
	{" -> readings: {keep: {age: -1s}}", `:10:24: readings.keep.age: must not be negative, but is -1s`},
	{" -> d2d: {broker: {url: site}}", `:10:21: d2d.broker.url: mqtt: broker URL "site" is not`},
	{" -> device: {temperature: {ease: 80, stop: 60}}",
		`:10:40: device.temperature.stop: must be at least ease (80), but is 60`},
	{" -> device: {battery: {ease: 20, stop: 50}}",
		`:10:36: device.battery.stop: must be at most ease (20), but is 50, because the battery level falls while ` +
			`the device works`},
	{" -> device: {load: {ease: 1, stop: 0}}",
		`:10:32: device.load.stop: ease and stop must be above 0 and at most 1000, or both 0 to disable the rule, ` +
			`but are 1 and 0`},
	{" -> device: {battery: {ease: 101, stop: 5}}",
		`:10:37: device.battery.stop: ease and stop must be above 0 and at most 100`},
	{" -> device: {windows: [\"22:00\"]}",
		`:10:10: device.windows: invalid time window "22:00"; use a window such as 22:00-06:30`},
	{" -> device: {root: \"\"}", `:10:16: device.root: must not be empty: set it to the folder that contains proc ` +
		`and sys, such ` +
		`as /`},
	{" -> metrics: {report_every: 25h}",
		`:10:25: metrics.report_every: must be 0s (never), or whole seconds up to 24h, but is 25h0m0s`},
	{" -> metrics: {listen: localhost}",
		`:10:19: metrics.listen: must be host:port, such as 127.0.0.1:9464, or empty, but is "localhost"`},
	{" -> log: {level: loud}",
		`:10:14: log.level: unknown log level "loud"; the levels are debug, info, warn and error`},
	{" -> log: {format: xml}", `:10:15: log.format: unknown log format "xml"; the formats are text and json`},
	{" -> d2d: {uplink: true, cell: a/b}", `:10:27: d2d.cell: mqtt: cell "a/b" must consist of 1 to 48 letters`},
	{" -> d2d: {uplink: true, cell: a, max_degree: 129}",
		`:10:42: d2d.max_degree: must be between 1 and 128, or 0 for the default of 6, but is 129`},
	{" -> d2d: {uplink: true, max_degree: 3}", `:10:33: d2d.max_degree: requires d2d.cell`},
	{" -> metric: {}", `:10:1: unknown key "metric"; did you mean "metrics"?`},
}

func TestCoordinatorProblems(t *testing.T) {
	load := func(path string) error {
		s := coordinatorsettings.Default()
		return settings.Load(&s, "coordinator", path, nil)
	}
	checkProblems(t, coordinatorFile(t), slices.Concat(coordinatorProblems, coordinatorFileProblems(t)), load)
}

// coordinatorFileProblems returns problems whose error text contains the paths of files that the test creates.
func coordinatorFileProblems(t *testing.T) []problem {
	bad := writeFile(t, "bad.keys", "a b c\n")
	return []problem{
		{" -> history: {mlflow: {url: \"http://mlflow:5000\", token_file: " + bad + "}}",
			`:14:25: history.mlflow.url: must be https:// because token_file is set`},
		{"agents_file: -> agents_file: " + bad + " #",
			`:4:16: identity.agents_file: ` + bad + `:1: invalid line: want an agent id and its public key`},
		{"agents_file: -> agents_file: " + writeFile(t, "none.keys", "# none\n") + " #",
			`:4:16: identity.agents_file: `},
	}
}

// coordinatorProblems lists problems whose error text is always the same.
var coordinatorProblems = []problem{
	{"federation: air -> federation: \"\"", `:1:13: federation: federation "": is empty`},
	{" -> state_dir: \"\"", `:14:12: state_dir: must not be empty`},
	{" -> history: {mlflow: {url: mlflow.example}}", `:14:25: history.mlflow.url: must be http://host:port`},
	{" -> history: {mlflow: {url: \"https://me:secret@mlflow\"}}", `:14:25: history.mlflow.url: must be`},
	{" -> history: {mlflow: {experiment: x}}", `:14:11: history.mlflow.url: is empty, but other keys`},
	{" -> history: {mlflow: {url: \"https://mlflow\", token_file: /nowhere}}",
		`:14:55: history.mlflow.token_file: token: open /nowhere`},
	{" -> broker: {url: x}", `:14:15: broker.url: mqtt: broker URL "x" is not`},
	{"    minimum: 2 ->     minimum: 3", `:9:14: round.gather.minimum: must be at most the number of agents in`},
	{"  quorum: 1 ->   quorum: 3", `:7:11: round.quorum: must be between 1 and participants (2), but is 3`},
	{"  quorum: 1 ->   quorum: 1\n  weights: both", `:8:12: round.weights: want equal or samples, got "both"`},
	{"  quorum: 1 ->   quorum: 1\n  deadline: 0s", `:8:13: round.deadline: must be between 1ms and`},
	{"  quorum: 1 ->   quorum: 1\n  stop: {patience: -1}", `:8:20: round.stop.patience: must not be negative`},
	{"  quorum: 1 ->   quorum: 1\n  stop: {accuracy: 0.9}",
		`:8:20: round.stop.accuracy: is 0.9, but the model predicts numbers (squared): use round.stop.r2 ` +
			`instead, or set this key to 0`},
	{"  quorum: 1 ->   quorum: 1\n  schedule: {windows: [\"22:00\"]}", `:8:14: round.schedule.windows: invalid time ` +
		`window "22:00"`},
	{"  quorum: 1 ->   quorum: 1\n  schedule: {windows: [\"22:00-06:00\"], zone: Mars}",
		`:8:46: round.schedule.zone: unknown time zone Mars: use a time zone name such as`},
	{"  quorum: 1 ->   quorum: 1\n  schedule: {zone: UTC}",
		`:8:20: round.schedule.zone: is UTC, but schedule.windows is empty`},
	{"  quorum: 1 ->   quorum: 1\n  schedule: {new_rows: {agents: 3, rows: 1}}",
		`:8:33: round.schedule.new_rows.agents: must be at most the number of agents in`},
	{"  quorum: 1 ->   quorum: 1\n  stop: {r2: 0.9}", `:8:3: round.stop: contains r2 or accuracy, which require ` +
		`held-out data`},
	{"name: air -> name: \"\"", `:11:9: task.name: must have 1 to`},
	{"[a, b] -> []", `:12:3: task.features: must not be empty`},
	{"target: y -> target: \"\"", `:13:11: task.target: must not be empty`},
	{" ->   grid: {step: 1h}", `:14:3: task.grid: this key is set, but task.inputs is empty: add inputs or remove ` +
		`this key`},
	{" ->   inputs: [{name: a}, {name: b}, {name: y}]", `:10:1: task.grid.step: invalid value 0s: must be between ` +
		`1ms and 1193h2m47.295s`},
	{" ->   grid: {step: 1h, zone: Mars/Olympus}\n  inputs: [{name: a}, {name: b}, {name: y}]",
		`:14:26: task.grid.zone: unknown time zone Mars/Olympus`},
	{" ->   grid: {step: 1h}\n  inputs: [{name: a}, {name: y}]",
		`:12:17: task.features[1]: "b": unknown input b; available inputs: a, y`},
	{" ->   grid: {step: 1h}\n  inputs: [{name: a}, {name: b}, {name: y, range: [1, 0]}]",
		`:15:44: task.inputs[2].range: invalid value [1 0]: must have the form [MINIMUM, MAXIMUM]`},
	{"[a, b] -> [a lag 90m]\n  grid: {step: 1h}\n  inputs: [{name: a}, {name: y}]",
		`:12:14: task.features[0]: "a lag 90m": the duration must be a multiple of the grid step (1h)`},
	{" ->   inputs: [{name: a, unt: m}]", `:14:22: unknown key "unt"; did you mean "unit"?`},
	{"target: y -> target: a", `:10:1: task: `},
	{" ->   model: {kind: cubic}", ":14:17: task.model.kind: want " +
		spec.JoinWithOr(append(spec.ModelKinds(), spec.ModelExternal)) + `, got "cubic"`},
	{" ->   model: {kind: conv1d, channels: 3, kernel: 2, filters: [3], pool: 1}",
		":14:35: task.model.channels: invalid number of channels 3: 2 features cannot be divided into equal channels"},
	{" ->   model: {kind: conv1d, channels: 1, kernel: 3, filters: [3], pool: 1}",
		":14:46: task.model.kernel: the kernel size 3 exceeds the 2 steps of a channel (2 features in 1 channels)"},
	{" ->   model: {kind: conv1d, channels: 1, kernel: 2, filters: [3], pool: 2}",
		":14:69: task.model.pool: the pool size is 2, but a kernel of 2 leaves only 1 of the 2 steps of a channel"},
	{" ->   model: {kind: conv1d}", ":14:3: task.model.filters: invalid value []: the model kind conv1d requires"},
	{" ->   model: {kernel: 3}", ":14:19: task.model.kernel: this key is set to 3, but only the model kind conv1d " +
		"supports this key"},
	{" ->   model: {kind: autoencoder, hidden: [1]}",
		`:13:11: task.target: is "y", but a model of kind autoencoder has no target column: remove this key`},
	{" ->   model: {risk: cubic}",
		":14:17: task.model.risk: want " + spec.JoinWithOr(spec.LossKinds()) + `, got "cubic"`},
	{" ->   model: {risk: full_squared}",
		":14:17: task.model.risk: must be " + spec.JoinWithOr(spec.DeviceLossKinds()) +
			`, but is "full_squared": agents support no other losses`},
	{" ->   model: {activation: step}", `:14:23: task.model.activation: want tanh, relu or identity, got "step"`},
	{" ->   model: {hidden: [3]}",
		`:14:11: task.model.hidden: this key is set to [3], but hidden layers are required for mlp and autoencoder, ` +
			`optional for ` +
			`conv1d and invalid for all other kinds`},
	{" ->   model: {kind: mlp, hidden: [65537]}", `:14:31: task.model.hidden[0]: invalid value 65537: must be ` +
		`between 1 and 65536`},
	{" ->   model: {kind: mlp}",
		":14:3: task.model.hidden: this key is set to [], but hidden layers are required for mlp and autoencoder, " +
			"optional for " +
			"conv1d and invalid for all other kinds; set " +
			"task.model.hidden in the file"},
	{" ->   model: {kind: softmax}", `:14:3: task.model.classes: invalid value 0: must be between 2 and 65536 with ` +
		`the risk softmax`},
	{" ->   exchange: letters", `:14:13: task.exchange: want parameters or gradient, got "letters"`},
	{" ->   batch_size: 65537", `:14:15: task.batch_size: must be between 0 (all rows) and 65536, but is 65537`},
	{" ->   response: {probability: 0}", `:14:27: task.response.probability: invalid value 0: must be more than 0 ` +
		`and at most 1`},
	{" ->   response: {probability: 1.5}",
		`:14:27: task.response.probability: invalid value 1.5: must be more than 0 and at most 1`},
	{" ->   gradient_noise: {law: white}",
		`:14:25: task.gradient_noise.law: want none, gaussian or laplace, got "white"`},
	{" ->   gradient_noise: {variance: 1}", `:14:30: task.gradient_noise.variance: this key is set to 1, but no ` +
		`noise law is set`},
	{" ->   gradient_noise: {law: laplace}",
		`:14:3: task.gradient_noise.variance: invalid value 0: must be a positive number with the law laplace`},
	{" ->   gradient_noise:\n    law: laplace\n    variance: -1",
		`:16:15: task.gradient_noise.variance: invalid value -1: must be a positive number`},
	{" ->   min_rows: 0", `:14:13: task.min_rows: must be at least 1, but is 0`},
	{" ->   clip: -1", `:14:9: task.clip: must not be negative, but is -1`},
	{" ->   step_size: 0.1", `:14:14: task.step_size: want a section of keys, got 0.1`},
	{" ->   step_size: {constant: 0}", `:14:25: task.step_size.constant: invalid value 0: must be a positive number`},
	{" ->   step_size: {strong_convexity: 1}",
		`:14:33: task.step_size.strong_convexity: this key is set to 1, but task.step_size.diminishing is not set`},
	{" ->   step_size: {diminishing: true}",
		`:14:3: task.step_size.strong_convexity: must be a positive number, but is 0`},
	{" ->   step_size: {diminishing: true, strong_convexity: 3, smoothness: 2}",
		`:14:67: task.step_size.smoothness: is 2, but must be at least ` +
			`task.step_size.strong_convexity (3) unless task.step_size.gamma is set`},
	{" ->   personal: {layers: [layer7]}",
		`:14:23: task.personal.layers[0]: invalid value "layer7": must be layer0, layer0.weight, layer0.bias or last`},
	{" ->   personal: {layers: [last]}", `:10:1: task: task "air": personal: all tensors are personal, but at least ` +
		`one must be shared`},
	{" ->   personal: {method: ditto, lambda: -1}", `:14:37: task.personal.lambda: invalid value -1: must be finite ` +
		`and not negative`},
	{" ->   personal: {method: mine}", `:14:22: task.personal.method: want layers or ditto, got "mine"`},
	{" ->   personal: {method: ditto}\n  standardize_at: [3]",
		`:15:3: task.standardize_at: cannot be combined with task.personal: personal models keep the previous ` +
			`standardisation`},
	{" ->   personal: {layers: [layer0.bias]}\nheld_out: {csv: rows.csv}",
		`:15:1: held_out: cannot be combined with task.personal.layers: the coordinator does not have the complete ` +
			`model`},
	{" ->   finetune: {steps: 3}\npredict: {rollout: 10%}",
		`:15:20: predict.rollout: cannot be combined with task.personal or task.finetune: each device predicts with ` +
			`its own`},
	{" ->   finetune: {steps: 1000001}", `:14:21: task.finetune.steps: invalid value 1000001: must be between 0 ` +
		`(none) and 1000000`},
	{" ->   steps: {budget: 25h}", `:14:19: task.steps.budget: must be between 1ms and 24h, but is 25h0m0s`},
	{" ->   steps: {budget: 0s}", `:14:19: task.steps.budget: must be between 1ms and 24h, but is 0s`},
	{" ->   steps: {min: 0}", `:14:16: task.steps.min: must be at least 1, but is 0`},
	{" ->   steps: {max: 1000000001}", `:14:16: task.steps.max: must be at most 1000000000, but is 1000000001`},
	{" ->   steps: {max: 0}", `:14:16: task.steps.max: must be at least task.steps.min (1), but is 0`},
	{" -> held_out: {shares: 2}", `:14:1: held_out.csv: no file is set`},
	{" -> held_out: {csv: none.csv}", `:14:17: held_out.csv: open none.csv: no such file`},
	{" -> policy: {max_norm: -1}", `:14:20: policy.max_norm: must not be negative, but is -1`},
	{" -> policy: {keep_models: 1}", `:14:23: policy.keep_models: must be 0 (all) or at least 2, but is 1`},
	{" -> log: {level: loud}", `:14:14: log.level: unknown log level`},
	{" -> metrics: {listen: x}", `:14:19: metrics.listen: must be host:port`},
}

func TestMixingProblems(t *testing.T) {
	load := func(path string) error {
		s := coordinatorsettings.Default()
		return settings.Load(&s, "coordinator", path, nil)
	}
	none := filepath.Join(t.TempDir(), "none")
	base := strings.Replace(coordinatorFile(t), "  quorum: 1",
		"  quorum: 1\n  algorithm: feddec\n  sampling: with_replacement", 1) +
		"  step_size: {normalize: false}\nmesh: {edges: ring}\n"
	checkProblems(t, base, []problem{
		{"normalize: false -> normalize: true",
			`:8:14: round.algorithm: feddec cannot be combined with task.step_size.normalize true: feddec applies ` +
				`the step size`},
		{"normalize: false} -> normalize: false}\n  mixing: {every: 3}",
			`:17:19: task.mixing.every: must be at least 1 and divide task.steps.max (100), but is 3`},
		{"normalize: false} -> normalize: false}\n  mixing: {codec: zip}",
			`:17:19: task.mixing.codec: want raw, bfloat16, int8, int4, signs or top_k:0.05, got "zip"`},
		{"normalize: false} -> normalize: false}\n  mixing: {codec: signs}",
			`:17:19: task.mixing.codec: want raw, bfloat16, int8 or int4, got "signs"`},
		{"normalize: false} -> normalize: false}\n  mixing: {wait: 500us}",
			`:17:18: task.mixing.wait: must be between 0s and 1h, in whole milliseconds, but is 500µs`},
		{"edges: ring -> edges: star",
			`:17:15: mesh.edges: want radius, file, ring, complete or discovered, got "star"`},
		{"edges: ring -> edges: radius", `:17:1: mesh.radius: must be positive if mesh.edges is radius`},
		{"edges: ring -> edges: file", `:17:1: mesh.file: must be set if mesh.edges is file`},
		{"edges: ring -> edges: file, file: " + none, `:17:27: mesh.file: stat ` + none},
		{"edges: ring -> edges: ring, weights: heavy",
			`:17:30: mesh.weights: want metropolis, best-constant, max-degree or fastest, got "heavy"`},
	}, load)
}

// TestSeveralProblems checks that all problems are reported together.
func TestSeveralProblems(t *testing.T) {
	text := strings.NewReplacer("id: roof-1", "id: a b", "csv: rows.csv", "csv: \"\"").Replace(agentFile(t))
	path := writeFile(t, "bad.yaml", text)
	s := settings.DefaultAgent()
	err := settings.Load(&s, "agentd", path, nil)
	for _, want := range []string{path + ":2:5: id: ", path + ":9:8: data.csv: "} {
		wantError(t, err, want)
	}
}

// TestOpenKeyFile checks that a daemon does not start if all users can read its private key or the key of its
// certificate.
func TestOpenKeyFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes mean nothing")
	}
	key, _ := writeKey(t)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	s := settings.DefaultAgent()
	err := settings.Load(&s, "agentd", writeFile(t, "a.yaml", agentFile(t)),
		map[string]string{"identity.key_file": key})
	wantError(t, err, "command line: identity.key_file: "+key+" can be read or written by all users "+
		"(mode 0644): run chmod 600 "+key)

	path, secret := writeKey(t)
	of := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, of, of, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	b := settings.DefaultBroker()
	b.CertFile, b.KeyFile = writeFile(t,
		"client.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))), path
	if _, _, err := b.SessionOptions("air-a"); err != nil {
		t.Errorf("a closed key: %v", err)
	}
	if err := os.Chmod(b.KeyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err = b.SessionOptions("air-a")
	wantError(t, err, "broker.key_file: "+b.KeyFile+" can be read or written by all users (mode 0644)")
}

func TestMissingKeyFile(t *testing.T) {
	s := settings.DefaultAgent()
	err := settings.Load(&s, "agentd", writeFile(t, "a.yaml", agentFile(t)),
		map[string]string{"identity.key_file": "/none/agent.key"})
	wantError(t, err, "command line: identity.key_file: open /none/agent.key: no such file or directory; create a key "+
		"with `key new`")
}
