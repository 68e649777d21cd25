package plot

import (
	"bytes"
	"errors"
	"image/color"
	"io"
	"os"
	"strings"
	"sync"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Drawing is an image that can be drawn on a canvas.
type Drawing interface{ Draw(c draw.Canvas) }

// SVG writes drawing d to w as an SVG image of the given size with a white background. SVG returns only write errors of
// w.
func SVG(w io.Writer, d Drawing, width, height vg.Length) error {
	c := vgsvg.New(width, height)
	d.Draw(draw.New(c))
	var b bytes.Buffer
	_, _ = c.WriteTo(&b) // Writing to a buffer in memory cannot fail.
	_, err := svgFontReplacer.WriteString(w, b.String())
	return err
}

// svgFontReplacer adds alternative fonts of equal width for machines without Liberation Sans. It also adds a white
// background, so that the image is readable on dark pages.
var svgFontReplacer = strings.NewReplacer("font-family:Liberation Sans",
	"font-family:Liberation Sans,Arial,Helvetica,sans-serif",
	"<svg ", `<svg style="background:#fff" `)

// PNG writes drawing d to w as a PNG image of the given size with 144 dpi and a white background. PNG returns only
// write errors of w.
func PNG(w io.Writer, d Drawing, width, height vg.Length) error {
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144), vgimg.UseBackgroundColor(color.White))
	d.Draw(draw.New(c))
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(w)
	return err
}

// WriteFiles writes drawing d to the files path.svg and path.png. It returns an error if d is an invalid Figure.
func WriteFiles(path string, d Drawing, width, height vg.Length) error {
	if f, ok := d.(*Figure); ok {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	for suffix, write := range map[string]func(io.Writer, Drawing, vg.Length, vg.Length) error{".svg": SVG,
		".png": PNG} {
		var b bytes.Buffer
		if err := errors.Join(write(&b, d, width, height), os.WriteFile(path+suffix, b.Bytes(), 0o666)); err != nil {
			return err
		}
	}
	return nil
}

// Colours of the text, lines and nodes.
var (
	ink   = color.NRGBA{R: 0x22, G: 0x2b, B: 0x36, A: 0xff}
	faint = color.NRGBA{R: 0x6b, G: 0x77, B: 0x85, A: 0xff}
	blue  = color.NRGBA{R: 0x1f, G: 0x5f, B: 0x9e, A: 0xff}
	amber = color.NRGBA{R: 0xc2, G: 0x6a, B: 0x12, A: 0xff}
	slate = color.NRGBA{R: 0x8a, G: 0x9b, B: 0xae, A: 0xff}
)

// fonts returns the embedded Liberation fonts, so that images are identical on every machine. The fonts are parsed on
// first use.
var fonts = sync.OnceValue(func() *font.Cache { return font.NewCache(liberation.Collection()) })

// centredTextStyle returns a style for centred text of the given size and colour.
func centredTextStyle(size vg.Length, c color.Color) text.Style {
	return text.Style{Color: c, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size),
		XAlign: text.XCenter, YAlign: text.YCenter, Handler: text.Plain{Fonts: fonts()}}
}
