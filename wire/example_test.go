package wire_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// These lines enclose the worked example in docs/PROTOCOL.md, which is generated from the golden files.
const (
	examplePage  = "../docs/PROTOCOL.md"
	exampleBegin = "<!-- from the golden files: go test ./wire -update -->\n"
	exampleEnd   = "<!-- to here -->\n"
)

func TestWorkedExample(t *testing.T) {
	page, err := os.ReadFile(examplePage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), exampleBegin)
	shown, after, ends := strings.Cut(rest, exampleEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %q and %q", examplePage, exampleBegin, exampleEnd)
	}
	want := workedExample(t)
	if *update {
		if err := os.WriteFile(examplePage, []byte(before+exampleBegin+want+exampleEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if shown != want {
		t.Errorf("%s: the worked example is\n%s\nwant\n%s", examplePage, shown, want)
	}
}

func workedExample(t *testing.T) string {
	var b strings.Builder
	for _, name := range []string{"announcement_gathering", "announcement_open", "announcement_pulled"} {
		e, err := wire.ParseEnvelope(readGolden(t, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "The digest of `%s` is `%v`.\n\n", name, e.Digest())
	}
	hello := readGolden(t, "hello")
	fmt.Fprintf(&b, "### `hello.hex`, byte by byte: %d bytes\n\n", len(hello))
	takeHello(&b, &dissection{t, hello})
	domain := fmt.Sprintf("fedmesh/v%d/hello", wire.ProtocolVersion)
	fmt.Fprintf(&b, "\nThe signature is over `%x` (%q and a zero byte), followed by the first %d bytes above.\n\n",
		domain+"\x00", domain, headerSize)
	chunk := readGolden(t, "chunk")
	fmt.Fprintf(&b, "### The chunk of `chunk.hex`, its first 28 of %d bytes\n\n", len(chunk))
	d := &dissection{t, chunk[:28]}
	d.line(&b, "magic, version, zero", 4, 1, 3)
	d.line(&b, fmt.Sprintf("number 1, payload of %d bytes", len(chunk)-24), 4, 4)
	d.line(&b, "first 8 bytes of the blob's hash", 8)
	const first = wire.MaxChunkBytes / 4
	d.line(&b, fmt.Sprintf("element %d = %v, and %d more", first, first/128., len(chunk[24:])/4-1), 4)
	hash := chunkBlob.TopicLevel()
	fmt.Fprintf(&b, "\nIt travels under `fl/v1/plant_7/m/%s/1` as a part of the model, and under\n"+
		"`fl/v1/plant_7/u/0/plant_7-press-01/%s/1` as a part of the update.\n", hash, hash[:16])
	return b.String()
}

func takeHello(b *strings.Builder, d *dissection) {
	body := len(d.p) - envelopeSize
	d.line(b, "magic, version, type 9 (hello), zero", 4, 1, 1, 2)
	d.line(b, `federation "plant_7"`, 32)
	d.line(b, `sender "press-01"`, 48)
	d.line(b, "epoch 5", 8)
	d.line(b, fmt.Sprint("run ", goldenRun), 8)
	d.line(b, "round 3", 8)
	d.line(b, "sequence 3", 8)
	d.line(b, fmt.Sprintf("body of %d bytes, root 1", body), 4, 4)
	d.line(b, "SHA-256 of the body", 32)
	d.line(b, "signature, first half", 32)
	d.line(b, "signature, second half", 32)
	d.line(b, fmt.Sprintf("nonce %#016x", goldenNonce), 8)
	d.line(b, "digest of announcement_gathering", 32)
	d.line(b, "fit", 1)
	d.line(b, "12 rows", 8)
	d.line(b, "no update", 32)
	d.line(b, "2 sections", 4)
	d.section(b, "location", 17)
	d.line(b, fmt.Sprintf("known, x = %v, y = %v", 3.5, -7), 1, 8, 8)
	d.section(b, "mixing", 56)
	d.line(b, "no key of seals", 32)
	d.line(b, "2 neighbours", 4)
	d.line(b, `"press-02"`, 2, 8)
	d.line(b, `"press-04"`, 2, 8)
	if len(d.p) > 0 {
		d.t.Errorf("the worked example leaves out %x", d.p)
	}
}

// dissection splits an encoded message into its fields.
type dissection struct {
	t *testing.T
	p []byte // bytes that have not been processed yet
}

// line writes one line that shows the next fields of the given sizes.
func (d *dissection) line(b *strings.Builder, says string, sizes ...int) {
	var fields []string
	for _, n := range sizes {
		field := d.p[:n]
		d.p = d.p[n:]
		text := hex.EncodeToString(field)
		if set := bytes.TrimRight(field, "\x00"); n > 16 && len(set) < n-4 {
			text = hex.EncodeToString(field[:(len(set)+1)&^1]) + " 0000…"
		}
		fields = append(fields, strings.TrimSpace(text))
	}
	fmt.Fprintf(b, "    %-66s%s\n", strings.Join(fields, " "), says)
}

// section writes the header of a section that readers may ignore.
func (d *dissection) section(b *strings.Builder, name string, size int) {
	d.line(b, fmt.Sprintf("section %s, ignore, %d bytes", name, size), 2, len(name), 1, 4)
}
