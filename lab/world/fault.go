package world

import "time"

// injectFault starts a fault and schedules its end.
func (w *World) injectFault(f Fault) {
	w.note("fault %s of party %d for %s, operation %d, lie %q", f.Kind, f.Party, f.For, f.Ops, f.Lie)
	p, b := w.parties[f.Party+1], w.broker
	over := func(undo func()) {
		w.healed = later(w.healed, w.now.Add(f.For))
		w.after(f.For, undo)
	}
	switch f.Kind {
	case Cut:
		if p.conn != nil {
			p.conn.cut(errCut)
		}
		w.partition(p, f.For)
	case Silent:
		if p.conn != nil {
			p.conn.silence()
		}
		w.partition(p, f.For)
	case Stopped:
		if p.life != nil && p.cancel != nil {
			p.stoppedUntil = w.now.Add(f.For)
			w.healed = later(w.healed, p.stoppedUntil)
			p.cancel()
		}
	case Killed, PowerCut, Blackout:
		p.strikeAt(f)
	case DiskFull:
		d := p.disk
		d.full, p.hadTrouble = true, true
		over(func() { d.full = false })
	case DiskSlow:
		d := p.disk
		d.slow = 5 * time.Second
		over(func() { d.slow = 0 })
	case EngineEnd:
		w.engineDown++
		over(func() { w.engineDown-- })
	case BrokerEnd:
		b.crash()
		over(func() { b.up = true })
	case Lossy:
		b.weather.loss += 0.2
		over(func() { b.weather.loss -= 0.2 })
	case Doubling:
		b.weather.double += 0.2
		over(func() { b.weather.double -= 0.2 })
	case Lying:
		p.lying[f.Lie]++
		over(func() {
			if p.lying[f.Lie]--; p.lying[f.Lie] == 0 {
				delete(p.lying, f.Lie)
			}
		})
	case Disorder:
		b.weather.late, b.weather.reorder = 2*time.Second, true
		over(func() { b.weather.late, b.weather.reorder = 0, false })
	}
}

// partition prevents a party from connecting to the broker for the duration d.
func (w *World) partition(p *party, d time.Duration) {
	p.cutOff++
	w.healed = later(w.healed, w.now.Add(d+keepAlive))
	w.after(d, func() { p.cutOff-- })
}

// strikeAt kills the process of a party, either immediately or at the disk operation whose number f contains.
func (p *party) strikeAt(f Fault) {
	end := func() {
		if f.Kind == Blackout {
			for _, other := range p.w.parties {
				if other != p && other.life != nil {
					p.w.after(0, func() { other.strikeAt(Fault{Kind: PowerCut, For: f.For}) })
				}
			}
		}
		p.w.note("fault of %s ends: %s", p.id, f.Kind)
		p.w.healed = later(p.w.healed, p.w.now.Add(f.For))
		p.kill()
		if f.Kind != Killed {
			p.disk.powerCut()
		}
		p.w.after(0, p.reap)
		p.startAfter(f.For)
	}
	switch {
	case p.life == nil:
	case f.Ops == 0:
		end()
	default:
		p.disk.cutAt, p.disk.cut = p.disk.ops+f.Ops, end
	}
}
