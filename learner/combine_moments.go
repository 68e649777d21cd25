package learner

import (
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// minDevicesToOutvote is the fewest devices among which one that lies is outvoted; the moments of fewer are added up.
const minDevicesToOutvote = 5

// maxCombinedElements bounds what CombineIntoStandardization holds at once: this many pairs of a mean and a variance,
// 17 bytes each.
const maxCombinedElements = 1 << 22

// minDeviatingSigmas is how many common deviations a device's column lies from the common mean, as a root mean square,
// to be named.
const minDeviatingSigmas = 100

// DeviatingDevice is a device whose rows of a column lie far from those of the others: another unit, a broken sensor,
// or a lie.
type DeviatingDevice struct {
	DeviceIndex      int     // in the order in which the moments came
	ColumnIndex      int     // its worst
	DistanceInSigmas float64 // √E(x − m)² over the device's rows, in units of the common σ
}

// CheckPlausible reports what no n rows of float32 can have as moments. [ColumnMomentsFromVector] has checked what no
// rows of any numbers can have.
func (m *ColumnMoments) CheckPlausible(n uint64) error {
	if m.RowCount != float64(n) {
		return fmt.Errorf("moments: they are of %v rows; the update names %d", m.RowCount, n)
	}
	for j, mean := range m.Mean {
		if square := m.SquaredDeviations[j]/m.RowCount + mean*mean; square > math.MaxFloat32*math.MaxFloat32 {
			return fmt.Errorf("moments: column %d has the mean square %v, beyond that of any float32", j, square)
		}
	}
	return nil
}

// CombineIntoStandardization makes the common standardisation of many devices, of whom one may lie. Each device has one
// vote: the mean of a column is the median m of the devices' means m_k, and its variance the median of s_k² + (m_k −
// m)², the mean squares of the devices' rows around m. So each of the two lies between what honest devices say, as long
// as they are the majority. Where the median is 0, that is where most devices have one constant, the variance is the
// trimmed mean of the devices that vary, so that the others' rows do not stay in raw units. A column of 0 and 1, or of
// −1 and 1, is not scaled; a column of two other values cannot be recognised from the moments, and is scaled. The
// target is treated as [Moments.Standardization] does. The moments of fewer than 5 devices are added up, which gives no
// protection from a lying device.
//
// each calls take for every device's moments, always in one order; CombineIntoStandardization calls it once for every
// block of columns, so that 10⁴ devices of 10³ columns take 70 MB and three passes. An error of each is returned.
func CombineIntoStandardization(devices, columns int, each func(take func(*ColumnMoments)) error, risk spec.LossKind,
	clip float64) (Standardization,
	[]DeviatingDevice, error) {
	if devices < minDevicesToOutvote {
		sum := newColumnMoments(columns - 1)
		if err := each(sum.mergeMoments); err != nil {
			return Standardization{}, nil, err
		}
		return sum.Standardization(risk, clip), nil, nil
	}
	st := Standardization{Mean: make([]float64, columns), Scale: make([]float64, columns), Clip: clip}
	worst := make([]DeviatingDevice, devices)
	if err := newDeviceColumnBlock(devices, min(columns, max(1, maxCombinedElements/devices))).combineAllColumns(each,
		&st,
		worst); err != nil {
		return Standardization{}, nil, err
	}
	st.keepLabelsUnscaled(risk)
	return st, slices.DeleteFunc(worst,
		func(f DeviatingDevice) bool { return f.DistanceInSigmas <= minDeviatingSigmas }), nil
}

// mergeMoments adds the moments of other rows.
func (m *ColumnMoments) mergeMoments(o *ColumnMoments) {
	for j := range m.Mean {
		m.mergeColumn(j, m.RowCount, o.RowCount, o.Mean[j], o.SquaredDeviations[j])
	}
	m.RowCount += o.RowCount
}

// deviceColumnBlock is a block of columns of all devices, each column in one piece.
type deviceColumnBlock struct {
	devices, width         int
	firstColumn, endColumn int // the columns of the block under way
	addedDevices           int // devices so far
	mean, variance         []float64
	isBinaryByColumn       []bool // all rows are 0 or 1, or all are −1 or 1

	meanSquares, sorted []float64 // of the column under way
}

func newDeviceColumnBlock(devices, width int) *deviceColumnBlock {
	n := devices * width
	return &deviceColumnBlock{
		devices: devices, width: width, mean: make([]float64, n), variance: make([]float64, n),
		isBinaryByColumn: make([]bool, n),
		meanSquares:      make([]float64, devices), sorted: make([]float64, devices),
	}
}

// combineAllColumns combines the columns block by block.
func (b *deviceColumnBlock) combineAllColumns(each func(take func(*ColumnMoments)) error, st *Standardization,
	worst []DeviatingDevice) error {
	for b.firstColumn = 0; b.firstColumn < len(st.Mean); b.firstColumn = b.endColumn {
		b.endColumn, b.addedDevices = min(len(st.Mean), b.firstColumn+b.width), 0
		if err := each(b.addDeviceMoments); err != nil {
			return err
		}
		for j := b.firstColumn; j < b.endColumn; j++ {
			b.combineColumn(j, st, worst)
		}
	}
	return nil
}

// addDeviceMoments keeps the next device's part of the block.
func (b *deviceColumnBlock) addDeviceMoments(m *ColumnMoments) {
	at := b.addedDevices
	for j := b.firstColumn; j < b.endColumn; j++ {
		b.mean[at] = m.Mean[j]
		b.variance[at] = m.SquaredDeviations[j] / m.RowCount
		b.isBinaryByColumn[at] = m.isBinaryColumn(j)
		at += b.devices
	}
	b.addedDevices++
}

// isBinaryColumn reports whether all values of a column are 0 or 1, or all are −1 or 1: the sum is then a whole number,
// and the squared deviations follow from the mean. They are 0 or at least ½.
func (m *ColumnMoments) isBinaryColumn(j int) bool {
	const rounded = 1e-9
	n, mean, q := m.RowCount, m.Mean[j], m.SquaredDeviations[j]
	sum := n * mean
	if q < 0.5-rounded {
		return q == 0 && (mean == 0 || math.Abs(mean) == 1)
	}
	return math.Abs(mean) <= 1 && math.Abs(sum-math.Round(sum)) <= rounded*n &&
		(math.Abs(q-n*mean*(1-mean)) <= rounded*n || math.Abs(q-n*(1-mean*mean)) <= rounded*n)
}

// combineColumn sets the column's mean and scale, and keeps in worst which devices lie far off.
func (b *deviceColumnBlock) combineColumn(j int, st *Standardization, worst []DeviatingDevice) {
	at := (j - b.firstColumn) * b.devices
	means, variances, binary := b.mean[at:at+b.devices], b.variance[at:at+b.devices],
		b.isBinaryByColumn[at:at+b.devices]
	m := b.median(means)
	vary, votes := 0, 0
	for k, mean := range means {
		v := variances[k] + float64((mean-m)*(mean-m))
		if v <= minRelativeVariance*max(float64(mean*mean), float64(m*m)) {
			v = 0
		}
		b.meanSquares[k] = v
		if v > 0 {
			vary++
			if binary[k] {
				votes++
			}
		}
	}
	variance := b.median(b.meanSquares)
	if variance == 0 && vary > 0 {
		variance = trimmedMean(b.sorted[b.devices-vary:])
	}
	st.Mean[j], st.Scale[j] = m, 1
	if 2*votes <= vary && variance > 0 {
		st.Scale[j] = math.Sqrt(variance)
	}
	for k, v := range b.meanSquares {
		if d := math.Sqrt(v / variance); v > 0 && d > worst[k].DistanceInSigmas {
			worst[k] = DeviatingDevice{k, j, d}
		}
	}
}

// median returns that of v, of an even number the mean of the middle two, and leaves v in order in b.sorted.
func (b *deviceColumnBlock) median(v []float64) float64 {
	copy(b.sorted, v)
	slices.Sort(b.sorted)
	n := len(b.sorted)
	return b.sorted[(n-1)/2]/2 + b.sorted[n/2]/2
}

// trimmedMean is the mean of ordered values without a fifth of them at each end, and of three or more without one.
func trimmedMean(v []float64) float64 {
	if cut := max(1, len(v)/5); len(v) > 2*cut {
		v = v[cut : len(v)-cut]
	}
	sum := 0.0
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}
