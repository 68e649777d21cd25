package external

import "time"

// The version of docs/TRAINER.md that is spoken here, and the most bytes of a line, its end among them.
const (
	protocolVersion = 1
	maxLine         = 65536
)

// The names of frames.
const (
	frameHello     = "hello"
	frameFit       = "fit"
	frameFitted    = "fitted"
	frameInitial   = "initial" // both ways
	frameRows      = "rows"    // both ways
	frameEvaluate  = "evaluate"
	frameEvaluated = "evaluated"
	framePredict   = "predict"
	framePredicted = "predicted"
	frameProgress  = "progress"
	frameStop      = "stop"
	frameFailed    = "failed"
)

// The words of hello's can.
const (
	capabilityMix      = "mixing"
	capabilityProximal = "proximal"
	capabilityEvaluate = "evaluate"
	capabilityInitial  = "initial"
	capabilityRows     = "rows"
	capabilityPredict  = "predict"
)

// helloFrame is the first frame to a program.
type helloFrame struct {
	Frame                 string  `json:"frame"`
	Version               int     `json:"version"`
	TensorFilePath        string  `json:"tensors"`
	Federation            string  `json:"federation"`
	Device                string  `json:"device"`
	TaskName              string  `json:"task"`
	SilenceTimeoutSeconds float64 `json:"timeout"` // seconds
}

// fitRequest asks for local steps first to last of a block.
type fitRequest struct {
	Frame      string  `json:"frame"`
	ID         uint64  `json:"id"`
	Round      string  `json:"round"`
	FirstStep  uint64  `json:"first"`
	LastStep   uint64  `json:"last"`
	BlockSteps uint64  `json:"block"`
	StepSize   float64 `json:"step_size"`
	BatchSize  uint32  `json:"batch_size"`
	Seed       uint64  `json:"seed"` // below 2^53
	Proximal   float64 `json:"proximal"`
}

// requestWithoutArguments is a frame with nothing but its number: rows, evaluate, predict, initial, or stop.
type requestWithoutArguments struct {
	Frame string `json:"frame"`
	ID    uint64 `json:"id"`
}

// programAnswer is any frame of a program.
type programAnswer struct {
	Frame         string             `json:"frame"`
	Version       int                `json:"version"`
	ID            uint64             `json:"id"`
	ProgramName   string             `json:"name"`
	Rows          int                `json:"rows"`
	Capabilities  []string           `json:"can"`
	TakenSteps    uint64             `json:"steps"`
	RiskBefore    *float64           `json:"risk_before"`
	RiskAfter     *float64           `json:"risk_after"`
	MetricByName  map[string]float64 `json:"metrics"`
	Risk          *float64           `json:"risk"`
	FailureReason string             `json:"why"`

	Predictions        []prediction `json:"predictions"`
	HasMorePredictions bool         `json:"more"`
}

// prediction is that of a row, or what its label has shown later.
type prediction struct {
	Time          time.Time `json:"time"` // zero if rows have none
	Value         *float64  `json:"value"`
	Probabilities []float64 `json:"probabilities"`
	Residual      *float64  `json:"residual"`
}
