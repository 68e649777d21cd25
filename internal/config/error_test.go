package config_test

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
)

// badFile is an invalid configuration file and the complete error message expected for it, including excerpt and caret.
type badFile struct{ name, yaml, want string }

func wantErrors(t *testing.T, tests []badFile) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.yaml, config.Source{})
			wantMessage(t, err, tt.want)
		})
	}
}

func wantMessage(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if got, want := err.Error(), strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFileErrors(t *testing.T) { wantErrors(t, fileErrors) }

var fileErrors = []badFile{
	{"unknown key", "task:\n  particpants: 6\n", `
c.yaml:2:3: unknown key "particpants"; did you mean "participants"?
  2 |   particpants: 6
    |   ^`},
	{"all unknown keys", "tsak: {}\nbroker: {ulr: x}\n", `
c.yaml:1:1: unknown key "tsak"; did you mean "task"?
  1 | tsak: {}
    | ^
c.yaml:2:10: unknown key "ulr"; did you mean "url"?
  2 | broker: {ulr: x}
    |          ^`},
	{"key of another section", "step_size: 1\n", `
c.yaml:1:1: unknown key "step_size"; step_size is a key of the section "task"
  1 | step_size: 1
    | ^`},
	{"dotted key", "task.level: 1\n", `
c.yaml:1:1: unknown key "task.level"; level is a key of the section "task"
  1 | task.level: 1
    | ^`},
	{"key of the top", "task:\n  ports: []\n", `
c.yaml:2:3: unknown key "ports"; ports is a top-level key: move it out of this section
  2 |   ports: []
    |   ^`},
	{"key like no other", "tls:\n  zebra: 1\n", `
c.yaml:2:3: unknown key "zebra"; the valid keys are ca, strict
  2 |   zebra: 1
    |   ^`},
	{"case and dash", "task:\n  Step-Size: 1\n", `
c.yaml:2:3: unknown key "Step-Size"; did you mean "step_size"?
  2 |   Step-Size: 1
    |   ^`},
	{"duplicate key", "agents: [a]\n\nagents: [b]\n", `
c.yaml:3:1: duplicate key "agents"; the key is already set on line 1
  3 | agents: [b]
    | ^`},
	{"duplicate entry", "labels: {a: b, a: c}\n", `
c.yaml:1:16: duplicate key "a"; the key is already set on line 1
  1 | labels: {a: b, a: c}
    |                ^`},
	{"text for a number", "task:\n  step_size: fast\n", `
c.yaml:2:14: task.step_size: want a finite number, got "fast"
  2 |   step_size: fast
    |              ^`},
	{"quoted number", "task: {participants: '6'}\n", `
c.yaml:1:22: task.participants: want a whole number, got the text "6"; remove the quotes
  1 | task: {participants: '6'}
    |                      ^`},
	{"number for text", "agents:\n  - 12\n", `
c.yaml:2:5: agents[0]: want text, got 12; put the value in quotes: "12"
  2 |   - 12
    |     ^`},
	{"entry of a map", "labels:\n  site: true\n", `
c.yaml:2:9: labels.site: want text, got true; put the value in quotes: "true"
  2 |   site: true
    |         ^`},
	{"fraction", "ports: [1, 2.5]\n", `
c.yaml:1:12: ports[1]: want a whole number, got 2.5
  1 | ports: [1, 2.5]
    |            ^`},
	{"out of range", "task: {level: 256, offset: -129}\n", `
c.yaml:1:15: task.level: want a whole number from 0 to 255, got 256
  1 | task: {level: 256, offset: -129}
    |               ^
c.yaml:1:28: task.offset: want a whole number from -128 to 127, got -129
  1 | task: {level: 256, offset: -129}
    |                            ^`},
	{"octal", "task: {participants: 010}\n", `
c.yaml:1:22: task.participants: want a whole number, got 010
  1 | task: {participants: 010}
    |                      ^`},
	{"not a number", "task: {step_size: .nan}\n", `
c.yaml:1:19: task.step_size: want a finite number, got .nan
  1 | task: {step_size: .nan}
    |                   ^`},
	{"infinity by overflow", "task: {step_size: 1e999}\n", `
c.yaml:1:19: task.step_size: want a finite number, got 1e999
  1 | task: {step_size: 1e999}
    |                   ^`},
	{"truth value", "task: {shuffle: yes}\n", `
c.yaml:1:17: task.shuffle: want true or false, got "yes"
  1 | task: {shuffle: yes}
    |                 ^`},
	{"duration without unit", "broker: {keepalive: 30}\n", `
c.yaml:1:21: broker.keepalive: want a duration such as "30s" or "1h30m", got 30; add a unit: 30s or 30m
  1 | broker: {keepalive: 30}
    |                     ^`},
	{"duration of zero", "broker: {keepalive: 0}\n", `
c.yaml:1:21: broker.keepalive: want a duration such as "30s" or "1h30m", got 0; add a unit: 0s or 0m
  1 | broker: {keepalive: 0}
    |                     ^`},
	{"duration in days", "broker: {keepalive: 1d}\n", `
c.yaml:1:21: broker.keepalive: want a duration such as "30s" or "1h30m", got "1d"; valid units are ms, s, m and h
  1 | broker: {keepalive: 1d}
    |                     ^`},
	{"size without unit", "task: {spool: 40}\n", `
c.yaml:1:15: task.spool: want a size such as "40MB" or "64KiB", got 40; add a unit: 40MB or 40MiB
  1 | task: {spool: 40}
    |               ^`},
	{"size out of range", "task: {spool: 9999999TiB}\n", `
c.yaml:1:15: task.spool: want a size such as "40MB" or "64KiB", got "9999999TiB"; valid units are B, kB, MB, GB, TB and KiB, MiB, GiB, TiB
  1 | task: {spool: 9999999TiB}
    |               ^`},
	{"list for a number", "task: {level: [1]}\n", `
c.yaml:1:15: task.level: want a whole number from 0 to 255, got a list
  1 | task: {level: [1]}
    |               ^`},
	{"text for a list", "agents: a1\n", `
c.yaml:1:9: agents: want a list, got "a1"; write [a, b]
  1 | agents: a1
    |         ^`},
	{"list for a map", "labels: [a]\n", `
c.yaml:1:9: labels: want key-value pairs, got a list; write {a: b}
  1 | labels: [a]
    |         ^`},
	{"text for a section", "task: fast\n", `
c.yaml:1:7: task: want a section of keys, got "fast"
  1 | task: fast
    |       ^`},
	{"empty section", "task:\n# level: 1\nagents: []\n", `
c.yaml:1:1: task: is empty; write the keys of this section, or remove the line
  1 | task:
    | ^`},
	{"empty value", "broker:\n  url:\n", `
c.yaml:2:3: broker.url: is empty; write a value, or remove the line
  2 |   url:
    |   ^`},
	{"empty element", "agents:\n- a\n-\n", `
c.yaml:3:2: agents[1]: want text, got nothing
  3 | -
    |  ^`},
	{"list at the top", "- a\n", `
c.yaml:1:1: want lines of the form "key: value", got a list
  1 | - a
    | ^`},
	{"no YAML", "hello\n", `
c.yaml:1:1: want lines of the form "key: value", got "hello"
  1 | hello
    | ^`},
}

func TestSyntaxErrors(t *testing.T) { wantErrors(t, syntaxErrors) }

var syntaxErrors = []badFile{
	{"tab", "task:\n\tlevel: 1\n", `
c.yaml:2:1: tabs are not allowed for indentation; use spaces
  2 | 	level: 1
    | ^`},
	{"indentation", "broker:\n  url: a\n    keepalive: 1s\n", `
c.yaml:2:8: mapping value is not allowed in this context; check the indentation, and put text that contains ": " in quotes
  2 |   url: a
    |        ^`},
	{"open bracket", "ports: [1, 2\n", `
c.yaml:1:8: sequence end token ']' not found
  1 | ports: [1, 2
    |        ^`},
	{"open quote", "broker:\n  url: \"x\ntask: {}\n", `
c.yaml:2:8: could not find end character of double-quoted text
  2 |   url: "x
    |        ^`},
	{"alias", "agents: &a [x]\nlabels: *a\n", `
c.yaml:1:9: anchors ("&name") are not supported; write the value without this feature, or put text that begins with this character in quotes
  1 | agents: &a [x]
    |         ^`},
	{"asterisk", "agents: [*]\n", `
c.yaml:1:10: aliases ("*name") are not supported; write the value without this feature, or put text that begins with this character in quotes
  1 | agents: [*]
    |          ^`},
	{"tag", "broker: {url: !!str 1}\n", `
c.yaml:1:15: tags ("!name") are not supported; write the value without this feature, or put text that begins with this character in quotes
  1 | broker: {url: !!str 1}
    |               ^`},
	{"second document", "agents: [a]\n---\nports: [1]\n", `
c.yaml:2:1: unexpected second document in the file; keep only one YAML document in the file
  2 | ---
    | ^`},
	{"second document after an empty one", "---\n# x\n---\nports: [1]\n", `
c.yaml:3:1: unexpected second document in the file; keep only one YAML document in the file
  3 | ---
    | ^`},
	{"second document after the end", "agents: [a]\n...\nports: [1]\n", `
c.yaml:3:1: unexpected second document in the file; keep only one YAML document in the file
  3 | ports: [1]
    | ^`},
	{"empty file", " \n\n", `
c.yaml: the file is empty; restore the file, or write at least a comment into it to use the defaults`},
	{"zeroed file", "\x00\x00\x00", `
c.yaml:1:1: invalid character U+0000; the file may be damaged
  1 | ` + "\ufffd\ufffd\ufffd" + `
    | ^`},
	{"Latin-1", "# ok\nagents: [caf\xe9]\n", `
c.yaml:2:13: invalid UTF-8 byte 0xe9; the file may be damaged
  2 | agents: [caf` + "\ufffd" + `]
    |             ^`},
	{"complex key", "{? {? ", `
c.yaml:1:2: complex keys ("? key") are not supported; write the value without this feature, or put text that begins with this character in quotes
  1 | {? {? 
    |  ^`},
}

// TestCaret checks the position of the caret in lines with tabs, accents or Windows line ends, and in long lines.
func TestCaret(t *testing.T) { wantErrors(t, caretErrors) }

var caretErrors = []badFile{
	{"tab before a value", "task:\n  level: \t\tx\n", `
c.yaml:2:12: task.level: want a whole number from 0 to 255, got "x"
  2 |   level: 		x
    |          		^`},
	{"tab between elements", "ports: [1,\tx]\n", `
c.yaml:1:12: ports[1]: want a whole number, got "x"
  1 | ports: [1,	x]
    |           	^`},
	{"accents", "labels: {é: ñ, ü: true}\n", `
c.yaml:1:19: labels.ü: want text, got true; put the value in quotes: "true"
  1 | labels: {é: ñ, ü: true}
    |                   ^`},
	{"comment and Windows line ends", "# ключ\r\ntask: # ключ\r\n  levle: 1\r\n", `
c.yaml:3:3: unknown key "levle"; did you mean "level"?
  3 |   levle: 1
    |   ^`},
	{"byte order mark", "\ufefftsak: {}\n", `
c.yaml:1:1: unknown key "tsak"; did you mean "task"?
  1 | tsak: {}
    | ^`},
	{"after a block", "broker:\n  url: |\n    a\n\n    b\nports: [x]\n", `
c.yaml:6:9: ports[0]: want a whole number, got "x"
  6 | ports: [x]
    |         ^`},
	{"block for a number", "task:\n  level: |\n    7\n", `
c.yaml:2:10: task.level: want a whole number from 0 to 255, got "7\n"; remove the quotes
  2 |   level: |
    |          ^`},
	{"value on the next line", "task:\n  level:\n    seven\n", `
c.yaml:3:5: task.level: want a whole number from 0 to 255, got "seven"
  3 |     seven
    |     ^`},
	{"line number of two digits", strings.Repeat("\n", 9) + "tsak: 1\n", `
c.yaml:10:1: unknown key "tsak"; did you mean "task"?
  10 | tsak: 1
     | ^`},
	{"long line", "labels: {a: '" + strings.Repeat("é", 200) + "', b: 7" + strings.Repeat(" ", 100) + "}\n", `
c.yaml:1:220: labels.b: want text, got 7; put the value in quotes: "7"
  1 | …` + strings.Repeat("é", 54) + "', b: 7" + strings.Repeat(" ", 59) + `…
    |  ` + strings.Repeat(" ", 60) + `^`},
}

func TestSecretsStayOutOfErrors(t *testing.T) { wantErrors(t, secretErrors) }

var secretErrors = []badFile{
	{"typed", "broker:\n  password: 12345\n", `
c.yaml:2:3: broker.password: want text, got a number or truth value; put the value in quotes
  2 |   password: [redacted]
    |   ^`},
	{"what config show prints", "broker: {password: '[redacted]'}\n", `
c.yaml:1:10: broker.password: is "[redacted]", the placeholder that config show prints for a secret; replace the placeholder with the secret
  1 | broker: {password: [redacted]
    |          ^`},
	{"mistyped name", "broker:\n  pasword: hunter2\n", `
c.yaml:2:3: unknown key "pasword"; did you mean "password"?
  2 |   pasword: [redacted]
    |   ^`},
	{"unknown name", "broker:\n  api_token: hunter2\n", `
c.yaml:2:3: unknown key "api_token"; the valid keys are url, password, password_file, keepalive
  2 |   api_token: [redacted]
    |   ^`},
	{"syntax error", "broker: {password: \"hunter2\n", `
c.yaml:1:20: could not find end character of double-quoted text
  1 | broker: {password: [redacted]
    |                    ^`},
	{"in a URL", "broker: {url: 'http://me:hunter2@proxy:1', ulr: x}\n", `
c.yaml:1:44: unknown key "ulr"; did you mean "url"?
  1 | broker: {url: 'http://**********@proxy:1', ulr: x}
    |                                            ^`},
	{"inside a block", "broker:\n  password: |\n    hunter2\n  \x01hunter2\n", `
c.yaml:4:3: invalid character U+0001; the file may be damaged
  4 | [redacted]
    |   ^`},
	{"not a secret", "broker:\n  password_file: 7\n", `
c.yaml:2:18: broker.password_file: want text, got 7; put the value in quotes: "7"
  2 |   password_file: 7
    |                  ^`},
}

func TestEnvironmentAndCommandLineErrors(t *testing.T) {
	_, err := load(t, "# none\n", config.Source{
		EnvPrefix: "AGENTD",
		Environ: []string{
			"AGENTD_TASK_STEP_SIZE=Inf", "AGENTD_BROKER_ULR=x", "AGENTD_ZEBRA=1", "AGENTD_PORTS=1,x",
			"AGENTD_LABELS=a,b=1,b=2",
			"AGENTD_TASK=x", "AGENTD_BROKER_PASSWORD=[redacted]", "AGENTD_TASK_SHUFFLE=on\n",
		},
		Overrides: map[string]string{"task.particpants": "1", "broker": "x", "broker.keepalive": "5", "zebra": "1",
			"task.level": "-1"},
	})
	wantMessage(t, err, `
environment AGENTD_BROKER_PASSWORD: broker.password: is "[redacted]", the placeholder that config show prints for a secret; replace the placeholder with the secret
environment AGENTD_BROKER_ULR: unknown variable; did you mean "AGENTD_BROKER_URL"?
environment AGENTD_LABELS: labels: want name=value, got "a"; or write the value as {name: value}, as in the configuration file
environment AGENTD_LABELS: duplicate key "b"
environment AGENTD_PORTS: ports[1]: want a whole number, got "x"
environment AGENTD_TASK: unknown variable
environment AGENTD_TASK_SHUFFLE: task.shuffle: want true or false, got "on\n"
environment AGENTD_TASK_STEP_SIZE: task.step_size: want a finite number, got "Inf"
environment AGENTD_ZEBRA: unknown variable
command line: broker: is a section; set one of the keys in this section: broker.url, broker.password, broker.password_file, broker.keepalive
command line: broker.keepalive: want a duration such as "30s" or "1h30m", got "5"; add a unit: 5s or 5m
command line: task.level: want a whole number from 0 to 255, got "-1"
command line: unknown key "task.particpants"; did you mean "task.participants"?
command line: unknown key "zebra"`)
}
