package learner

import (
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// minDevicesToOutvote is the minimum number of devices for the robust combination of moments, which tolerates a
// malicious device. The moments of fewer devices are summed.
const minDevicesToOutvote = 5

// maxCombinedElements bounds the memory of CombineIntoStandardization. It is the maximum number of pairs of a mean and
// a variance in memory; each pair needs 17 bytes.
const maxCombinedElements = 1 << 22

// minDeviatingSigmas is the minimum distance of a device from the common mean for the device to be reported. The
// distance is a root mean square, in units of the common standard deviation.
const minDeviatingSigmas = 100

// DeviatingDevice is a device with a column whose values are far from the values of the other devices, due to another
// unit, a broken sensor, or manipulation.
type DeviatingDevice struct {
	DeviceIndex      int // index of the device in the sequence of moments
	ColumnIndex      int // index of the column with the largest distance from the common mean
	DistanceInSigmas float64
}

// CheckPlausible returns an error if these moments are impossible for n rows of float32 values.
// [ColumnMomentsFromVector] has already checked general constraints.
func (m *ColumnMoments) CheckPlausible(n uint64) error {
	if m.RowCount != float64(n) {
		return fmt.Errorf("moments: computed from %v rows, but the update reports %d rows", m.RowCount, n)
	}
	for j, mean := range m.Mean {
		if square := m.SquaredDeviations[j]/m.RowCount + mean*mean; square > math.MaxFloat32*math.MaxFloat32 {
			return fmt.Errorf("moments: column %d has the mean square %v, which exceeds the range of float32", j,
				square)
		}
	}
	return nil
}

// CombineIntoStandardization computes the common standardisation of many devices and tolerates a malicious minority.
// Each device has one vote. The mean of a column is the median m of the devices' means m_k. The variance of the column
// is the median over the devices of s_k² + (m_k − m)², the mean squared deviation of device k's rows from m, where s_k²
// is the variance on device k. If this median is 0, because the column is constant on most devices, the variance is the
// trimmed mean over the other devices, so that their rows are scaled. A column of 0 and 1, or of −1 and 1, is not
// scaled. Other columns with two values cannot be recognised from the moments and are scaled. The target is treated as
// in [ColumnMoments.Standardization]. The moments of fewer than 5 devices are summed, without protection from a
// malicious device.
//
// The function each must call take with the moments of every device, always in the same order. It is called once per
// block of columns, so that 10⁴ devices with 10³ columns need 70 MB and three passes. If each returns an error,
// CombineIntoStandardization returns it.
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

// deviceColumnBlock contains the moments of all devices for a block of columns. The values of each column are
// contiguous.
type deviceColumnBlock struct {
	devices, width         int
	firstColumn, endColumn int // columns of the current block, from firstColumn to endColumn − 1
	addedDevices           int // number of devices added so far
	mean, variance         []float64
	isBinaryByColumn       []bool // whether all values of the column are 0 or 1, or all are −1 or 1

	meanSquares, sorted []float64 // buffers for computations on the current column
}

func newDeviceColumnBlock(devices, width int) *deviceColumnBlock {
	n := devices * width
	return &deviceColumnBlock{
		devices: devices, width: width, mean: make([]float64, n), variance: make([]float64, n),
		isBinaryByColumn: make([]bool, n),
		meanSquares:      make([]float64, devices), sorted: make([]float64, devices),
	}
}

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

// addDeviceMoments adds the part of the next device's moments that belongs to the block.
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

// isBinaryColumn reports whether all values of a column are 0 or 1, or all are −1 or 1. In these cases the sum of the
// column is an integer, and the sum of squared deviations follows from the mean and is either 0 or at least ½.
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

// combineColumn sets the common mean and scale of a column, and updates the largest distance of each device from the
// common mean.
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

// median returns the median of v, or the mean of the middle two values for an even length. It stores the sorted values
// in b.sorted.
func (b *deviceColumnBlock) median(v []float64) float64 {
	copy(b.sorted, v)
	slices.Sort(b.sorted)
	n := len(b.sorted)
	return b.sorted[(n-1)/2]/2 + b.sorted[n/2]/2
}

// trimmedMean returns the mean of sorted values without a fifth of the values at each end. For three or more values, it
// leaves out at least one value at each end.
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
