package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"
)

// assets contains the page: HTML, CSS, JavaScript modules without a build step, and the chart library uPlot.
//
//go:embed assets
var assets embed.FS

// contentTypes lists the types of the files. The system's table could lack some of them.
var contentTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// pageHandler serves the files of the page. A browser asks again for each file, and receives it only if it has changed.
func pageHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if name == "" {
			name = "index.html"
		}
		text, err := assets.ReadFile("assets/" + name)
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
