package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round/schedule"
	"github.com/fedmesh/fedmesh/spec"
)

func TestOpens(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	east := time.FixedZone("east", 8*60*60)
	for name, c := range map[string]struct {
		schedule.Config
		want time.Duration
	}{
		"always":        {schedule.Config{}, 0},
		"inside":        {schedule.Config{Windows: []string{"11:00-13:00"}}, 0},
		"in UTC":        {schedule.Config{Windows: []string{"22:00-06:00"}}, 10 * time.Hour},
		"in its zone":   {schedule.Config{Windows: []string{"22:00-06:00"}, Location: east}, 2 * time.Hour},
		"inside of its": {schedule.Config{Windows: []string{"20:00-21:00"}, Location: east}, 0},
	} {
		if got := c.NextRoundOpening(now).Sub(now); got != c.want {
			t.Errorf("%s: opens in %s, want %s", name, got, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	good := schedule.Config{Windows: []string{"22:00-06:00"}, TimeZone: "Asia/Shanghai",
		NewRows: schedule.NewRowsCondition{MinAgents: 1, MinRowsPerAgent: 1}}
	if err := errors.Join(good.Validate(), new(schedule.Config).Validate()); err != nil {
		t.Error(err)
	}
	for key, bad := range map[string]schedule.Config{
		"windows":         {Windows: []string{"22:00"}},
		"zone":            {TimeZone: "UTC"},
		"new_rows.agents": {NewRows: schedule.NewRowsCondition{MinRowsPerAgent: 1}},
		"new_rows.rows":   {NewRows: schedule.NewRowsCondition{MinAgents: 1, MinRowsPerAgent: 2_000_000_000}},
	} {
		field := (*spec.FieldError)(nil)
		if !errors.As(bad.Validate(), &field) || field.Key != key {
			t.Errorf("a wrong %s: %v", key, bad.Validate())
		}
	}
}
