package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// Page is a page for the browser: HTML, CSS and JavaScript modules without a build step. A program links only the files
// of its own page.
type Page struct {
	files fs.FS
	index string // name of the HTML file
}

//go:embed assets
var coordinatorFiles embed.FS

//go:embed assets/agent.html assets/agent.js assets/dom.js assets/icon.svg assets/store.js assets/style.css
var agentFiles embed.FS

// CoordinatorPage returns the page of the coordinator, with the chart library uPlot.
func CoordinatorPage() Page { return Page{coordinatorFiles, "index.html"} }

// AgentPage returns the page of a device.
func AgentPage() Page { return Page{agentFiles, "agent.html"} }

// contentTypes lists the types of the files. The system's table could lack some of them.
var contentTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// handler serves the files of the page. A browser asks again for each file, and receives it only if it has changed.
func (p Page) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if name == "" {
			name = p.index
		}
		text, err := fs.ReadFile(p.files, "assets/"+name)
		kind, served := contentTypes[path.Ext(name)]
		if err != nil || !served {
			http.NotFound(w, r)
			return
		}
		hash := sha256.Sum256(text)
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", `"`+hex.EncodeToString(hash[:8])+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	})
}
