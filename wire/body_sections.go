package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// UnknownSectionPolicy tells a reader what to do with a section that it does not know.
type UnknownSectionPolicy uint8

// The needs.
const (
	IgnoreUnknownSection  UnknownSectionPolicy = iota + 1 // pass over it
	DeclineUnknownSection                                 // do not take part: the section changes what is computed
)

// String returns the need's name.
func (n UnknownSectionPolicy) String() string { return enumName(uint8(n), "ignore", "decline") }

// BodySection is a named part at the end of a body. A body that gains a section stays readable for those that do not
// know it, and Need tells them whether they may go on.
type BodySection struct {
	Name          string // 1 to MaxSectionName of a–z, 0–9 and _
	UnknownPolicy UnknownSectionPolicy
	Body          []byte // at least one byte
}

// UnknownSections holds the sections of a body that this build does not know, ascending by name. A body that is read
// and written again keeps them.
type UnknownSections []BodySection

// ErrUnsupportedSection reports a body with a section that this build does not know and must not pass over.
var ErrUnsupportedSection = errors.New("this build does not know it and must not go on without")

// CheckSupported names the sections that are marked "decline"; nil if there are none. A reader that gets an error does
// not take part in what the body asks for.
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

// sectionCodec is a section that this build knows of a body: how it is written from the body, and read into it.
type sectionCodec struct {
	name          string
	unknownPolicy UnknownSectionPolicy
	writeBody     func(w *writer) // writes nothing where the body has no such section
	readBody      func(r *reader)
}

// chunkCountSectionCodec is a section with a number of chunks; without it there are none.
func chunkCountSectionCodec(name string, n *uint32) sectionCodec {
	return sectionCodec{name, IgnoreUnknownSection, func(w *writer) {
		if *n > 0 {
			w.u32(*n)
		}
	}, func(r *reader) {
		if *n = r.u32(); *n > MaxBlobChunks {
			r.failf("%d chunks, more than %d", *n, MaxBlobChunks)
		}
	}}
}

// rowCountSectionCodec is a section with a number of rows; without it there is none.
func rowCountSectionCodec(name string, n *uint32) sectionCodec {
	return sectionCodec{name, IgnoreUnknownSection, func(w *writer) {
		if *n > 0 {
			w.u32(*n)
		}
	}, func(r *reader) { *n = r.u32() }}
}

// bodySections ends the encoding of a body.
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

// bodySections reads the end of a body, and returns the sections that it does not know.
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

// decodeSection reads a section. One that the body would be written without is an error: each body has one encoding.
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
		r.failf("section %s is marked %q, it must be %q", s.Name, s.UnknownPolicy, p.unknownPolicy)
	case len(again.encoded) == 0:
		r.failf("section %s says nothing", s.Name)
	}
}

// nextSection reads one that comes after the section of that name.
func (r *reader) nextSection(before string) BodySection {
	s := BodySection{r.ascendingName("section", before), UnknownSectionPolicy(r.enum("need",
		uint8(DeclineUnknownSection))),
		r.bytes("section", MaxBlobBytes)}
	if r.err == nil && len(s.Body) == 0 {
		r.failf("section %s is empty", s.Name)
	}
	return s
}

// isSectionNameByte reports whether the name of a section may have a byte.
func isSectionNameByte(c byte) bool { return isLowerLetter(c) || isDigit(c) || c == '_' }

// ascendingName reads the name of an entry of a list that is ordered by names; before is that of the entry before it.
func (r *reader) ascendingName(field, before string) string {
	name := r.str(field, MaxSectionName)
	if r.err != nil {
		return ""
	}
	err := checkName(name, MaxSectionName, isSectionNameByte)
	switch {
	case err != nil:
		r.failf("%s %q: %w; use a–z, 0–9 and _", field, name, err)
	case name <= before:
		r.failf("%s %q after %q: they must ascend", field, name, before)
	}
	return name
}
