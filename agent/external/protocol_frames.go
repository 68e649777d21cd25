package external

import "time"

// Version of the protocol in docs/TRAINER.md, and maximum length of a line in bytes, including its end.
const (
	protocolVersion = 1
	maxLine         = 65536
)

// Names of frames, the messages between the agent and an external program.
const (
	frameHello     = "hello"
	frameFit       = "fit"
	frameFitted    = "fitted"
	frameInitial   = "initial" // name of both the request and its answer
	frameRows      = "rows"    // name of both the request and its answer
	frameEvaluate  = "evaluate"
	frameEvaluated = "evaluated"
	framePredict   = "predict"
	framePredicted = "predicted"
	frameProgress  = "progress"
	frameStop      = "stop"
	frameFailed    = "failed"
)

// Optional capabilities that a program reports in its hello frame.
const (
	capabilityMix      = "mixing"
	capabilityProximal = "proximal"
	capabilityEvaluate = "evaluate"
	capabilityInitial  = "initial"
	capabilityRows     = "rows"
	capabilityPredict  = "predict"
)

// helloFrame is the first frame that the agent sends to a program.
type helloFrame struct {
	Frame                 string  `json:"frame"`
	Version               int     `json:"version"`
	TensorFilePath        string  `json:"tensors"`
	Federation            string  `json:"federation"`
	Device                string  `json:"device"`
	TaskName              string  `json:"task"`
	SilenceTimeoutSeconds float64 `json:"timeout"` // maximum time without output, in seconds
}

// fitRequest requests the local steps first to last of a block.
type fitRequest struct {
	Frame      string  `json:"frame"`
	ID         uint64  `json:"id"`
	Round      string  `json:"round"`
	FirstStep  uint64  `json:"first"`
	LastStep   uint64  `json:"last"`
	BlockSteps uint64  `json:"block"`
	StepSize   float64 `json:"step_size"`
	BatchSize  uint32  `json:"batch_size"`
	Seed       uint64  `json:"seed"` // random seed for the local steps, less than 2^53
	Proximal   float64 `json:"proximal"`
}

// requestWithoutArguments is a request frame that contains only an ID. It serves the requests rows, evaluate, predict,
// initial and stop.
type requestWithoutArguments struct {
	Frame string `json:"frame"`
	ID    uint64 `json:"id"`
}

// programAnswer contains the fields of all frames that a program sends.
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

// prediction is the predicted value of one row, or the residual of the row if the label is known.
type prediction struct {
	Time          time.Time `json:"time"` // time of the row; zero if rows have no time
	Value         *float64  `json:"value"`
	Probabilities []float64 `json:"probabilities"`
	Residual      *float64  `json:"residual"`
}
