package wire

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// rowRecipe encodes the recipe that defines how rows are made from readings.
func (w *writer) rowRecipe(p *spec.RowRecipe) {
	if len(p.Inputs) == 0 {
		return
	}
	w.milliseconds(p.Grid.Step)
	w.milliseconds(p.Grid.Lateness)
	w.str(p.Grid.TimeZone)
	w.u32(uint32(len(p.Inputs)))
	for i := range p.Inputs {
		in := &p.Inputs[i]
		w.str(in.Name)
		w.str(in.Unit)
		w.f64s(in.ValidRange)
		w.u8(resamplingCodes.codeOfValue(in.Resampling))
		w.u8(valueTransformCodes.codeOfValue(in.Transform))
		w.u32(uint32(len(in.Classes)))
		for _, class := range in.Classes {
			w.str(class)
		}
		w.milliseconds(in.LabelLateness)
		if in.Resampling == spec.ResampleHeld {
			w.milliseconds(in.MaxAge)
		}
	}
}

func (r *reader) rowRecipe(p *spec.RowRecipe) {
	p.Grid = spec.TimeGrid{Step: r.milliseconds(), Lateness: r.milliseconds(), TimeZone: r.str("time zone", MaxName)}
	for range r.listLength("inputs", spec.MaxInputs, 18) {
		in := spec.InputSeries{Name: r.str("input", MaxName), Unit: r.str("unit", MaxName), ValidRange: r.f64s("range",
			2),
			Resampling: resamplingCodes.readValue(r, "resampling"),
			Transform:  valueTransformCodes.readValue(r, "transform")}
		for range r.listLength("classes", spec.MaxClasses, 2) {
			in.Classes = append(in.Classes, r.str("class", MaxName))
		}
		in.LabelLateness = r.milliseconds()
		if in.Resampling == spec.ResampleHeld {
			in.MaxAge = r.milliseconds()
		}
		p.Inputs = append(p.Inputs, in)
	}
}

// sensorLimits encodes the plausibility limits for the sensors that provide the inputs.
func (w *writer) sensorLimits(p *spec.RowRecipe) {
	n := uint32(0)
	var all writer
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.StuckAfter > 0 || in.MaxJump != 0 {
			n++
			all.u32(uint32(i))
			all.milliseconds(in.StuckAfter)
			all.f64(in.MaxJump)
		}
	}
	if n > 0 {
		w.u32(n)
		w.encoded = append(w.encoded, all.encoded...)
	}
}

// sensorLimits decodes the plausibility limits. It must be called after rowRecipe.
func (r *reader) sensorLimits(p *spec.RowRecipe) {
	least := 0
	for range r.listLength("sensors", spec.MaxInputs, 16) {
		i := int(r.u32())
		stuck, jump := r.milliseconds(), r.f64("jump")
		switch {
		case r.err != nil:
			return
		case i < least || i >= len(p.Inputs):
			r.failf("sensor limits: the input number is %d, but must be between %d and %d", i, least, len(p.Inputs)-1)
			return
		case stuck == 0 && jump == 0:
			r.failf("sensor limits: no limits for input %d", i)
		}
		p.Inputs[i].StuckAfter, p.Inputs[i].MaxJump = stuck, jump
		least = i + 1
	}
}

func (w *writer) milliseconds(d time.Duration) { w.u32(uint32(d.Milliseconds())) }

func (r *reader) milliseconds() time.Duration { return time.Duration(r.u32()) * time.Millisecond }
