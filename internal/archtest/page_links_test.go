package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

// TestPageLinks checks that the file and the anchor of every relative link in Markdown pages exist.
func TestPageLinks(t *testing.T) {
	report(t, brokenLinks(t, os.DirFS(root)))
}

var (
	pageLink   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	headline   = regexp.MustCompile(`^#{1,6} +(.+)$`)
	htmlAnchor = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linkedText = regexp.MustCompile(`\[([^\]]*)\]\([^()]*\)`)
	inlineCode = regexp.MustCompile("`[^`]*`")
)

// brokenLinks reports links to files or anchors that do not exist.
func brokenLinks(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	var complaints []string
	pages := markdownPages(t, fsys)
	for file, lines := range pages {
		for _, line := range lines {
			for _, m := range pageLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, "`x`"), -1) {
				if problem := linkProblem(fsys, pages, file, m[1]); problem != "" {
					complaints = append(complaints, fmt.Sprintf("%s links to %s: %s", file, m[1], problem))
				}
			}
		}
	}
	return complaints
}

// linkProblem describes why a link is broken. It returns an empty string for valid links and for links to other sites.
func linkProblem(fsys fs.FS, pages map[string][]string, file, link string) string {
	target, anchor, hasAnchor := strings.Cut(link, "#")
	if strings.Contains(target, ":") {
		return ""
	}
	to := file
	if target != "" {
		to = path.Join(path.Dir(file), target)
	}
	if _, err := fs.Stat(fsys, to); err != nil && !strings.HasPrefix(to, "..") {
		return "the file does not exist"
	}
	if lines, isPage := pages[to]; isPage && hasAnchor && !pageAnchors(lines)[anchor] {
		return "the page has no heading with this anchor"
	}
	return ""
}

// markdownPages returns the lines of all Markdown files, without code blocks.
func markdownPages(t *testing.T, fsys fs.FS) map[string][]string {
	t.Helper()
	pages := map[string][]string{}
	err := fs.WalkDir(fsys, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && name != "." && (strings.HasPrefix(name, ".") || name == "bin" ||
			name == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(file) != ".md" {
			return nil
		}
		text, err := fs.ReadFile(fsys, file)
		inBlock := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				inBlock = !inBlock
			} else if !inBlock {
				pages[file] = append(pages[file], strings.TrimRight(line, "\n"))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// pageAnchors returns the anchors that GitHub derives from the headings of a page, and the anchors that the page sets
// in HTML.
func pageAnchors(lines []string) map[string]bool {
	anchors, count := map[string]bool{}, map[string]int{}
	for _, line := range lines {
		for _, m := range htmlAnchor.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
		m := headline.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch r = unicode.ToLower(r); {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, linkedText.ReplaceAllString(strings.TrimSpace(m[1]), "$1"))
		if n := count[anchor]; n > 0 {
			anchors[fmt.Sprintf("%s-%d", anchor, n)] = true
		}
		anchors[anchor] = true
		count[anchor]++
	}
	return anchors
}

// TestPageLinksRed tests brokenLinks with valid and broken links.
func TestPageLinksRed(t *testing.T) {
	const b = "# A kind of model, or a loss\n\n## `key`: The *end* of 1.5\n\n## Twice\n## Twice\n\n" +
		"```\n# In a block\n```\n"
	for link, want := range map[string]string{
		"b.md": "", "b.md#a-kind-of-model-or-a-loss": "", "b.md#key-the-end-of-15": "", "b.md#twice-1": "",
		"#self": "", "https://example.org/c.md#x": "", "../a.go#L3": "",
		"b.md#a-kind-of-model": "no heading", "b.md#in-a-block": "no heading", "b.md#twice-2": "no heading",
		"#other": "no heading", "c.md": "does not exist", "../docs/c.md#x": "does not exist",
	} {
		fsys := fstest.MapFS{"docs/b.md": {Data: []byte(b)}, "a.go": {},
			"docs/a.md": {Data: []byte("# Self\n\nSee [it](" + link + "), not `[it](d.md)`.\n")}}
		wantComplaint(t, brokenLinks(t, fsys), want)
	}
}
