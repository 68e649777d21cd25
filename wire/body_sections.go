package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// UnknownSectionPolicy defines how a reader must handle a section that it does not know.
type UnknownSectionPolicy uint8

// Values of UnknownSectionPolicy.
const (
	IgnoreUnknownSection UnknownSectionPolicy = iota + 1
	DeclineUnknownSection
)

// String returns the name of the policy.
func (n UnknownSectionPolicy) String() string { return enumName(uint8(n), "ignore", "decline") }

// BodySection is a named section at the end of a message body. A reader that does not know a section can still decode
// the body. UnknownPolicy defines whether the reader may process such a body.
type BodySection struct {
	Name          string // name with 1 to MaxSectionName characters of a–z, 0–9 and _
	UnknownPolicy UnknownSectionPolicy
	Body          []byte // content of the section, at least one byte
}

// UnknownSections contains the sections of a message body that this build does not know, in ascending order of name.
// They are kept when the body is encoded again.
type UnknownSections []BodySection

// ErrUnsupportedSection is the error for a mandatory section that this build does not know.
var ErrUnsupportedSection = errors.New("mandatory but not supported by this program version")

// CheckSupported returns an error that names the unknown sections with the policy "decline", or nil if there are no
// such sections. If it returns an error, the reader must not participate.
func (x UnknownSections) CheckSupported() error {
	var names []string
	for _, s := range x {
		if s.UnknownPolicy == DeclineUnknownSection {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("section %s: %w", strings.Join(names, ", "), ErrUnsupportedSection)
}

// sectionCodec encodes and decodes one known section of a body.
type sectionCodec struct {
	name          string
	unknownPolicy UnknownSectionPolicy
	writeBody     func(w *writer) // writes the content; writes no bytes if the section is absent
	readBody      func(r *reader)
}

// chunkCountSectionCodec returns the codec of a section that contains a number of chunks. An absent section means 0.
func chunkCountSectionCodec(name string, n *uint32) sectionCodec {
	return sectionCodec{name, IgnoreUnknownSection, func(w *writer) {
		if *n > 0 {
			w.u32(*n)
		}
	}, func(r *reader) {
		if *n = r.u32(); *n > MaxBlobChunks {
			r.failf("%d chunks exceed the limit of %d", *n, MaxBlobChunks)
		}
	}}
}

// rowCountSectionCodec returns the codec of a section that contains a number of rows. An absent section means 0.
func rowCountSectionCodec(name string, n *uint32) sectionCodec {
	return sectionCodec{name, IgnoreUnknownSection, func(w *writer) {
		if *n > 0 {
			w.u32(*n)
		}
	}, func(r *reader) { *n = r.u32() }}
}

// bodySections encodes the known sections in parts and the unknown sections in extra, sorted by name.
func (w *writer) bodySections(parts []sectionCodec, extra UnknownSections) {
	all := slices.Clone(extra)
	for _, p := range parts {
		var body writer
		if p.writeBody(&body); len(body.encoded) == 0 {
			continue
		}
		at := 0
		for at < len(all) && all[at].Name < p.name {
			at++
		}
		all = slices.Insert(all, at, BodySection{p.name, p.unknownPolicy, body.encoded})
	}
	w.u32(uint32(len(all)))
	for _, s := range all {
		w.str(s.Name)
		w.u8(uint8(s.UnknownPolicy))
		w.bytes(s.Body)
	}
}

// bodySections decodes the sections at the end of a message body and returns the unknown sections.
func (r *reader) bodySections(parts []sectionCodec) (extra UnknownSections) {
	last := ""
	for range r.listLength("sections", MaxSections, 7) {
		s := r.nextSection(last)
		if r.err != nil {
			return nil
		}
		last = s.Name
		k := slices.IndexFunc(parts, func(p sectionCodec) bool { return p.name == s.Name })
		if k < 0 {
			extra = append(extra, s)
			continue
		}
		parts[k].decodeSection(r, s)
	}
	return extra
}

// decodeSection decodes a known section. A section with default content is an error, because each body must have a
// unique encoding.
func (p *sectionCodec) decodeSection(r *reader, s BodySection) {
	inner := reader{unread: s.Body}
	p.readBody(&inner)
	var again writer
	p.writeBody(&again)
	err := inner.finish("section " + s.Name)
	switch {
	case err != nil:
		r.fail(err)
	case s.UnknownPolicy != p.unknownPolicy:
		r.failf("section %s has the policy %q, but must have %q", s.Name, s.UnknownPolicy, p.unknownPolicy)
	case len(again.encoded) == 0:
		r.failf("section %s contains only default values, so the sender must omit the section", s.Name)
	}
}

// nextSection decodes a section. It fails unless the section's name is greater than before, the name of the previous
// section.
func (r *reader) nextSection(before string) BodySection {
	s := BodySection{r.ascendingName("section", before), UnknownSectionPolicy(r.enum("policy",
		uint8(DeclineUnknownSection))),
		r.bytes("section", MaxBlobBytes)}
	if r.err == nil && len(s.Body) == 0 {
		r.failf("section %s is empty", s.Name)
	}
	return s
}

// isSectionNameByte reports whether the name of a section may contain c.
func isSectionNameByte(c byte) bool { return isLowerLetter(c) || isDigit(c) || c == '_' }

// ascendingName decodes a name that must be greater than before, the previous name of the list.
func (r *reader) ascendingName(field, before string) string {
	name := r.str(field, MaxSectionName)
	if r.err != nil {
		return ""
	}
	err := checkName(name, MaxSectionName, isSectionNameByte)
	switch {
	case err != nil:
		r.failf("%s %q: %w; use only a–z, 0–9 and _", field, name, err)
	case name <= before:
		r.failf("%s %q is listed after %q: names must be in ascending order", field, name, before)
	}
	return name
}
