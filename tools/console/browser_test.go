package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

var pictures = flag.String("pictures", "", "folder for pictures of all pages")

// axe is the program axe-core, which finds violations of accessibility rules in a page.
//
//go:embed testdata/axe.min.js
var axe string

// browser is a tab of a headless Chromium.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // errors in the console, and exceptions
	expected []string // parts of errors that the test causes
}

// openBrowser starts Chromium. It fails the test at its end if the page has reported an error.
func openBrowser(t testing.TB) *browser {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath("chromium"),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true))
	allocated, endBrowser := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		closeTab()
		endBrowser()
	})
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	b.size(1280, 900, "light")
	go func() {
		for m, err := range chromedp.Console(ctx) {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" {
				b.mu.Lock()
				b.problems = append(b.problems, m.String())
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + ' ' + document.body.innerText"))
			t.Logf("the page shows (error %v):\n%s", err, text)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			if !slices.ContainsFunc(b.expected, func(text string) bool { return strings.Contains(p, text) }) {
				t.Errorf("the page reports: %s", p)
			}
		}
	})
	return b
}

// expectProblems permits errors that contain a text, such as failed requests that the test causes.
func (b *browser) expectProblems(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.fail(err)
	}
}

// fail ends the test with the text of the page.
func (b *browser) fail(err error) {
	b.t.Helper()
	text, textErr := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	b.t.Fatalf("%v\nthe page shows (%v):\n%s", err, textErr, text)
}

// size sets the size of the page, and its colours: light or dark.
func (b *browser) size(width, height int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		b.t.Fatal(err)
	}
}

// open shows a page of the console.
func (b *browser) open(url, page string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url+"#/"+page))
}

// await waits until an element that matches a selector contains a text. The page may be reloaded meanwhile.
func (b *browser) await(selector, text string) {
	b.t.Helper()
	condition := fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))", selector, text)
	testkit.Until(b.t, fmt.Sprintf("%q in %s", text, selector), func() bool {
		found, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](condition))
		return err == nil && found
	})
}

// click clicks the element of the given kind, such as button, whose text is label.
func (b *browser) click(kind, label string) {
	b.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%q)].find((e) => e.innerText.trim() === %q)", kind, label)
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](find+".click() || true")); err != nil {
		b.fail(fmt.Errorf("clicking the %s %q: %w", kind, label, err))
	}
}

// evaluate returns the value of a JavaScript expression or of the promise that it returns.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	x, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.fail(fmt.Errorf("%s: %w", expression, err))
	}
	return x
}

// checkAccessibility fails the test if axe-core finds a violation.
func (b *browser) checkAccessibility(what string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[chromedp.Void](axe+"\n;undefined")(ctx, t)
		return err
	}))
	result := evaluate[string](b, `axe.run(document, {resultTypes: ['violations']}).then((r) => JSON.stringify(
		r.violations.map((v) => v.id + ': ' + v.help + ' ' + v.nodes.map((n) => n.html).join('\n'))))`)
	var violations []string
	if err := json.Unmarshal([]byte(result), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		b.t.Errorf("%s: accessibility: %s", what, v)
	}
}

// checkWidth fails the test if the page is wider than the window.
func (b *browser) checkWidth(what string) {
	b.t.Helper()
	if over := evaluate[float64](b, "document.documentElement.scrollWidth - window.innerWidth"); over > 0 {
		b.t.Errorf("%s: the page is %v pixels wider than the window", what, over)
	}
}

// photograph saves a picture of the page if the flag -pictures is set.
func (b *browser) photograph(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), picture, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}
