package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/internal/monitoring"
)

// shown is how much of the past a picture has.
const shown = 2 * time.Minute

// draw writes a picture of each dashboard, if they are wanted, when there is
// something to see on them: as HTML, and as PNG where Chromium is.
func (w *watch) draw(ctx context.Context, began time.Time) error {
	if w.pictures == "" {
		return nil
	}
	fmt.Printf("waiting until there are %s to show\n", shown)
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(shown - time.Since(began)):
	}
	if err := os.MkdirAll(w.pictures, 0o750); err != nil {
		return err
	}
	for i := range w.dashboards {
		d := &w.dashboards[i]
		page, height, err := w.server.Picture(ctx, d, w.choices(d)[0], time.Now().Add(-shown), time.Now())
		if err != nil {
			return err
		}
		file := filepath.Join(w.pictures, strings.TrimSuffix(d.File, ".json"))
		if err := os.WriteFile(file+".html", []byte(page), 0o600); err != nil {
			return err
		}
		if err := w.photograph(ctx, file, height); err != nil {
			return err
		}
	}
	return nil
}

// photograph makes file.png of file.html.
func (w *watch) photograph(ctx context.Context, file string, height int) error {
	chromium, err := program("chromium", "chromium")
	if err != nil {
		fmt.Printf("%s.html: no PNG of it: %v\n", file, err)
		return nil
	}
	page, err := filepath.Abs(file + ".html")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+w.path("chromium"),
		fmt.Sprintf("--window-size=%d,%d", monitoring.Width, height), "--screenshot="+strings.TrimSuffix(page, ".html")+".png", "file://"+page)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("chromium: %w: %s", err, out)
	}
	fmt.Println(file + ".png")
	return nil
}
