package round_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// dawn is the time at which test scripts and simulations begin.
var dawn = time.Unix(1_000_000_000, 0).UTC()

// name returns a digest that the function show prints as the text s, which has at most 32 bytes.
func name(s string) (d wire.Digest) {
	copy(d[:], s)
	return d
}

func nameOf(d wire.Digest) string { return string(bytes.TrimRight(d[:], "\x00")) }

// show formats an effect or an event on one line: the name of its type, then its non-zero fields.
func show(x any) string {
	switch r := x.(type) {
	case round.ReportEvent:
		return "  " + show(r.Event)
	case agentround.ReportEvent:
		return "  " + show(r.Event)
	}
	v := reflect.ValueOf(x)
	return strings.TrimRight(v.Type().Name()+" "+fields(v), " ")
}

func fields(v reflect.Value) string {
	var parts []string
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.IsZero():
		case v.Type().Field(i).Anonymous:
			parts = append(parts, fields(f))
		default:
			parts = append(parts, strings.ToLower(v.Type().Field(i).Name)+"="+value(f))
		}
	}
	return strings.Join(parts, " ")
}

func value(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case wire.Digest:
		return nameOf(x)
	case wire.Update:
		return nameOf(x.PayloadManifest.Hash)
	case wire.BlobRef:
		return nameOf(x.Hash)
	case wire.AnnouncementPosition:
		return fmt.Sprintf("%d.%d-%s", x.Round, x.Attempt, x.Phase)
	case time.Time:
		return x.Sub(dawn).String()
	case round.Plan:
		return strings.TrimRight(fmt.Sprintf("%s-v%d-%s", x.Kind, x.BaseModelVersion, nameOf(x.BaseModel.Hash)), "-")
	case wire.Announcement:
		s := strings.TrimRight(fmt.Sprintf("%d-%s-%s-v%d-%s-%s", x.Attempt, x.Phase, x.Kind, x.BaseModelVersion,
			nameOf(x.Task.Hash), nameOf(x.BaseModel.Hash)), "-")
		if x.LastEndedRound > 0 {
			s += fmt.Sprintf("-folded%d", x.LastEndedRound)
		}
		if x.InitialCreditChunks > 0 {
			s += fmt.Sprintf("-credit%d", x.InitialCreditChunks)
		}
		if r := x.ResponsePolicy; r != (wire.AgentResponsePolicy{}) {
			s += fmt.Sprintf("-respond%.6g", float64(r.AnswerProbability)/(1<<32))
			if r.PresenceInRoundOnly {
				s += "-presence"
			}
			if r.DisconnectMillis > 0 || r.AbsenceSpreadMillis > 0 {
				s += fmt.Sprintf("-return%d+%dms", r.DisconnectMillis, r.AbsenceSpreadMillis)
			}
		}
		if x.MinEvaluationRows > 0 {
			s += fmt.Sprintf("-evaluate%d", x.MinEvaluationRows)
		}
		if r := x.Rollout; r.ReleasedModel.IsSet() {
			s += fmt.Sprintf("-released%d", r.ReleasedModel.Version)
			if r.CandidateModel.IsSet() {
				s += fmt.Sprintf("-candidate%d@%g", r.CandidateModel.Version, r.CandidateAgentShare)
			}
		}
		return s
	case evaluation.ResultPool:
		r := x.Summarize(1)
		return fmt.Sprintf("{agents=%d rows=%d risk=%.6g}", r.ReportingAgents, r.Rows, r.Risk)
	case round.Participant:
		return strings.TrimRight(fmt.Sprintf("%s*%d@%.4g=%s", x.Agent, x.DrawCount, x.Weight,
			nameOf(x.AcceptedUpdateDigest)), "=")
	case round.SelectedAgent:
		return fmt.Sprintf("%s@%.4g", x.Agent, x.StepWeight)
	case round.MixingEdge:
		return fmt.Sprintf("%s-%s*%g", x.A, x.B, x.MixingWeight)
	case wire.MixingPeer:
		return fmt.Sprintf("%s/%d*%g#%d", x.ID, x.BootEpoch, x.MixingWeight, x.PublicKey[0])
	case round.Contribution:
		s := fmt.Sprintf("%.6g*%s:%s", x.ContributionFactor, x.Agent, nameOf(x.UpdateDigest))
		if x.Norm != 1 { // Print the norm only if it differs from 1, the norm of all updates in scripts.
			s += fmt.Sprintf("‖%g‖", x.Norm)
		}
		return s
	case *round.RoundOutcome:
		return fmt.Sprintf("%d.%d", x.Round, x.Attempt)
	case round.AcceptedUpdates:
		return fmt.Sprintf("%d%v", x.Round, slices.Sorted(maps.Keys(x.UpdateDigestByAgent)))
	case fmt.Stringer:
		return x.String()
	case error:
		return fmt.Sprintf("%q", x.Error())
	case *float64:
		return fmt.Sprintf("%.6g", *x)
	case float64:
		return fmt.Sprintf("%.6g", x)
	}
	switch v.Kind() {
	case reflect.Struct:
		return "{" + fields(v) + "}"
	case reflect.Slice:
		all := make([]string, v.Len())
		for i := range all {
			all[i] = value(v.Index(i))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return fmt.Sprint(v.Interface())
}
