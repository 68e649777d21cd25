package rule

import "github.com/fedmesh/fedmesh/wire"

// addScaled adds f·v to acc, which has the same length as v. It rounds each product separately, so that the result is
// the same on every CPU.
func addScaled[T wire.Float](acc []float64, f float64, v []T) {
	if x, ok := any(v).([]float32); ok {
		n := addScaledFast(acc, f, x)
		acc, v = acc[n:], v[n:]
	}
	addScaledGo(acc, f, v)
}

// addScaledGo implements addScaled in Go. It processes four elements at a time, which is 1.4 times as fast as a plain
// loop.
func addScaledGo[T wire.Float](acc []float64, f float64, v []T) {
	for len(acc) >= 4 && len(v) >= 4 {
		a, x := (*[4]float64)(acc), (*[4]T)(v)
		a[0] += float64(f * float64(x[0]))
		a[1] += float64(f * float64(x[1]))
		a[2] += float64(f * float64(x[2]))
		a[3] += float64(f * float64(x[3]))
		acc, v = acc[4:], v[4:]
	}
	for i, x := range v {
		acc[i] += float64(f * float64(x))
	}
}
