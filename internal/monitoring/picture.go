package monitoring

import (
	"context"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// The measures of a picture, in pixels: Width and the height of a row of the
// grid.
const (
	Width     = 1600
	rowHeight = 38
)

// Picture draws a dashboard with what Prometheus has of a time, as a page of
// HTML for a person to look at, and returns its height in pixels. It looks a
// little like Grafana, and is not: it shows that the panels have their places, and
// the queries make sense.
func (p Prometheus) Picture(ctx context.Context, d *Dashboard, c Choice, from, to time.Time) (page string, height int, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, `<!doctype html><meta charset="utf-8"><style>
body{margin:0;background:#f4f5f5;font:13px "DejaVu Sans",sans-serif;color:#24292e}
.p{position:absolute;box-sizing:border-box;background:#fff;border:1px solid #e0e0e0;padding:6px 8px;overflow:hidden}
.r{background:none;border:none;font-weight:bold;font-size:15px;padding-top:12px}
.t{font-weight:bold;margin-bottom:2px;white-space:nowrap}
.l{font-size:11px;line-height:15px}.l i{display:inline-block;width:12px;height:4px;margin:0 4px 3px 10px}
.v{font-size:34px;font-weight:bold;text-align:center;padding-top:24px}
</style><div class="p r" style="left:8px;top:0">%s, %s</div>`, html.EscapeString(d.Title), html.EscapeString(c.Instance))
	for _, panel := range d.Panels {
		g := panel.GridPos
		x, y, w, h := g.X*Width/gridColumns+4, 40+g.Y*rowHeight, g.W*Width/gridColumns-8, g.H*rowHeight-6
		height = max(height, y+h+10)
		if panel.Type == "row" {
			fmt.Fprintf(&b, `<div class="p r" style="left:%dpx;top:%dpx">%s</div>`, x, y, html.EscapeString(panel.Title))
			continue
		}
		fmt.Fprintf(&b, `<div class="p" style="left:%dpx;top:%dpx;width:%dpx;height:%dpx"><div class="t">%s</div>`, x, y, w, h, html.EscapeString(panel.Title))
		inside, err := p.panel(ctx, &panel, c, from, to, w-18, h-30)
		if err != nil {
			return "", 0, fmt.Errorf("%s, panel %d: %w", d.File, panel.ID, err)
		}
		b.WriteString(inside + "</div>")
	}
	return b.String(), height, nil
}

// gridColumns is the number of columns of a dashboard.
const gridColumns = 24

func (p Prometheus) panel(ctx context.Context, panel *Panel, c Choice, from, to time.Time, w, h int) (string, error) {
	var all []Series
	var names []string
	for _, t := range panel.Targets {
		expr := c.fill(t.Expr)
		var found []Series
		var err error
		if panel.Type == "timeseries" {
			found, err = p.QueryRange(ctx, expr, from, to, max(to.Sub(from)/200, time.Second))
		} else {
			found, err = p.Query(ctx, expr)
		}
		if err != nil {
			return "", err
		}
		for _, s := range found {
			all, names = append(all, s), append(names, legend(t.LegendFormat, s.Labels))
		}
	}
	if len(all) == 0 {
		return `<div class="v">no data</div>`, nil
	}
	switch panel.Type {
	case "stat":
		return stat(panel, all[0], names[0]), nil
	case "bargauge":
		return bars(panel, all, names, w), nil
	}
	return lines(panel, all, names, from, to, w, h), nil
}

// legend fills labels into a legend's format.
func legend(format string, labels map[string]string) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
	return format
}

var palette = []string{"#56a64b", "#e0b400", "#3274d9", "#e02f44", "#8f3bb8", "#ff780a", "#37872d", "#1f60c4", "#c4162a", "#7c2ea3", "#fa6400", "#96d98d"}

func stat(panel *Panel, s Series, name string) string {
	x := s.Points[len(s.Points)-1].Value
	text, color := format(x, panel.FieldConfig.Defaults.Unit), "green"
	for _, step := range panel.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || x >= *step.Value {
			color = step.Color
		}
	}
	for _, m := range panel.FieldConfig.Defaults.Mappings {
		if o, ok := m.Options[fmt.Sprint(x)]; ok {
			text, color = o.Text, o.Color
		}
	}
	if panel.Options.TextMode == "name" {
		text = name
	}
	color = map[string]string{"green": palette[0], "orange": palette[5], "red": palette[3]}[color]
	return fmt.Sprintf(`<div class="v" style="color:%s">%s</div>`, color, html.EscapeString(text))
}

func bars(panel *Panel, all []Series, names []string, w int) string {
	most := 0.
	for _, s := range all {
		most = max(most, s.Points[0].Value)
	}
	var b strings.Builder
	for i, s := range all {
		x := s.Points[0].Value
		fmt.Fprintf(&b, `<div style="margin:2px 0">%s <span style="display:inline-block;background:%s;height:12px;width:%dpx"></span> %s</div>`,
			html.EscapeString(names[i]), palette[i%len(palette)], int(x/max(most, 1e-300)*float64(w-220)), format(x, panel.FieldConfig.Defaults.Unit))
	}
	return b.String()
}

// format is a number for people.
func format(x float64, unit string) string {
	scaled := func(base float64, suffixes ...string) string {
		i := 0
		for ; i < len(suffixes)-1 && math.Abs(x) >= base; i++ {
			x /= base
		}
		return fmt.Sprintf("%.4g %s", x, suffixes[i])
	}
	switch unit {
	case "percentunit":
		return fmt.Sprintf("%.3g %%", 100*x)
	case "s":
		switch {
		case x != 0 && math.Abs(x) < 1:
			return fmt.Sprintf("%.3g ms", 1e3*x)
		case math.Abs(x) >= 120:
			return time.Duration(x * float64(time.Second)).Round(time.Second).String()
		}
		return fmt.Sprintf("%.3g s", x)
	case "bytes":
		return scaled(1024, "B", "KiB", "MiB", "GiB")
	case "decbytes":
		return scaled(1000, "B", "kB", "MB", "GB")
	case "Bps":
		return scaled(1000, "B/s", "kB/s", "MB/s", "GB/s")
	case "cps":
		return fmt.Sprintf("%.3g c/s", x)
	}
	return fmt.Sprintf("%.4g", x)
}

// lines draws series over time, stacked if the panel says so.
func lines(panel *Panel, all []Series, names []string, from, to time.Time, w, h int) string {
	stacked := panel.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	legendHeight := 15 * (1 + (len(strings.Join(names, "    "))+4*len(names))*7/max(w, 1))
	h -= min(legendHeight, h/2)
	const left, below = 64, 16
	below0 := map[float64]float64{} // what is stacked so far, by time
	least, most := 0., 0.
	for i, s := range all {
		for j, x := range s.Points {
			if stacked {
				below0[x.At] += x.Value
				all[i].Points[j].Value = below0[x.At]
			}
			if v := all[i].Points[j].Value; !math.IsNaN(v) {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	if most == least {
		most = least + 1
	}
	px := func(at float64) float64 {
		return left + (at-float64(from.Unix()))/to.Sub(from).Seconds()*float64(w-left)
	}
	py := func(v float64) float64 { return float64(h-below) - (v-least)/(most-least)*float64(h-below-8) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg width="%d" height="%d" style="display:block">`, w, h)
	for k := range 5 {
		v := least + float64(k)/4*(most-least)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e6e6e6"/><text x="%d" y="%.1f" font-size="10" text-anchor="end">%s</text>`,
			left, w, py(v), py(v), left-4, py(v)+3, format(v, panel.FieldConfig.Defaults.Unit))
	}
	for k := range 4 {
		at := from.Add(to.Sub(from) * time.Duration(k) / 4)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" font-size="10">%s</text>`, px(float64(at.Unix())), h-2, at.Format(time.TimeOnly))
	}
	for i, s := range slices.Backward(all) {
		var points strings.Builder
		for _, x := range s.Points {
			if !math.IsNaN(x.Value) {
				fmt.Fprintf(&points, "%.1f,%.1f ", px(x.At), py(x.Value))
			}
		}
		color := palette[i%len(palette)]
		if stacked && len(s.Points) > 0 {
			fmt.Fprintf(&b, `<polygon points="%.1f,%.1f %s%.1f,%.1f" fill="%s" fill-opacity="0.8"/>`,
				px(s.Points[0].At), py(0), points.String(), px(s.Points[len(s.Points)-1].At), py(0), color)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.3"/>`, points.String(), color)
	}
	b.WriteString(`</svg><div class="l">`)
	for i, name := range names {
		fmt.Fprintf(&b, `<i style="background:%s"></i>%s`, palette[i%len(palette)], html.EscapeString(name))
	}
	return b.String() + "</div>"
}
