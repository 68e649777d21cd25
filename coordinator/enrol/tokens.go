package enrol

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

const maxTokens = 10_000

// tokenRecord is the stored state of a token. Times are rounded to seconds.
type tokenRecord struct {
	// Agent is the device that may use the token. If empty, any unlisted device may use it until it expires.
	Agent          wire.AgentID `json:"agent"`
	ReplacedAgent  wire.AgentID `json:"replaces,omitempty"` // device whose list entry is replaced; may be Agent itself
	TokenPublicKey []byte       `json:"key"`                // public part of the token's key
	IssuedAt       time.Time    `json:"made"`
	ExpiresAt      time.Time    `json:"expires"`
	DeviceSignKey  []byte       `json:"device,omitempty"` // signing key of the device that used the token
	DeviceTLSKey   []byte       `json:"tls,omitempty"`
	DeviceListed   bool         `json:"done,omitempty"` // true once the device was added to the list
}

func (t *tokenRecord) isUsed() bool { return len(t.DeviceSignKey) > 0 }

// isUsedBy reports whether a join request comes from the device that used the token.
func (t *tokenRecord) isUsedBy(j *wire.EnrolmentRequest) bool {
	return bytes.Equal(t.DeviceSignKey, j.DeviceKey[:]) && bytes.Equal(t.DeviceTLSKey, j.TLSKey[:])
}

// tokenStore contains all unexpired tokens, at most one per device. It writes each change to disk before it takes
// effect.
type tokenStore struct {
	disk         store.Disk
	dir          string // path of the state folder
	storedTokens []tokenRecord
}

// openTokens reads the tokens file. A damaged file is an error, because a used token could become valid again.
func openTokens(disk store.Disk, dir string) (*tokenStore, error) {
	t := &tokenStore{disk: disk, dir: dir}
	body, err := disk.LoadStateFile(dir, runs.Tokens)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return t, nil
	case err == nil:
		err = json.Unmarshal(body, &t.storedTokens)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the enrolment tokens: %w; remove the file, and create new tokens", err)
	}
	return t, nil
}

// saveTokens replaces all tokens, first on disk and then in memory.
func (t *tokenStore) saveTokens(all []tokenRecord) error {
	body, err := json.Marshal(all)
	if err == nil {
		err = t.disk.SaveStateFile(t.dir, runs.Tokens, body)
	}
	if err == nil {
		t.storedTokens = all
	}
	return err
}

// unexpiredTokens returns a copy of the tokens without the expired ones.
func (t *tokenStore) unexpiredTokens(now time.Time) []tokenRecord {
	return slices.DeleteFunc(slices.Clone(t.storedTokens), func(x tokenRecord) bool { return !now.Before(x.ExpiresAt) })
}

// issue creates a token. It replaces an earlier token for the same device.
func (t *tokenStore) issue(agent, replaces wire.AgentID, pin wire.RootPin, now time.Time,
	ttl time.Duration) (wire.EnrolmentToken,
	error) {
	is := wire.EnrolmentToken{Agent: agent, Pin: pin}
	rand.Read(is.Secret[:])
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(x tokenRecord) bool { return x.Agent == agent })
	if len(all) >= maxTokens {
		return wire.EnrolmentToken{},
			fmt.Errorf("the limit of %d unexpired tokens is reached: wait until some expire, "+
				"or revoke devices that will not join",
				maxTokens)
	}
	public := is.SigningKey().Public().(ed25519.PublicKey)
	made := now.UTC().Truncate(time.Second)
	all = append(all, tokenRecord{Agent: agent, ReplacedAgent: replaces, TokenPublicKey: public, IssuedAt: made,
		ExpiresAt: made.Add(ttl)})
	return is, t.saveTokens(all)
}

// findForJoin returns the token whose key signed a join request, or nil.
func (t *tokenStore) findForJoin(j *wire.EnrolmentRequest, binding []byte, now time.Time) *tokenRecord {
	text := j.SignedText(binding)
	for _, agent := range []wire.AgentID{j.Agent, ""} {
		i := slices.IndexFunc(t.storedTokens, func(x tokenRecord) bool { return x.Agent == agent })
		if i >= 0 && now.Before(t.storedTokens[i].ExpiresAt) && ed25519.Verify(t.storedTokens[i].TokenPublicKey, text,
			j.TokenSignature[:]) {
			return &t.storedTokens[i]
		}
	}
	return nil
}

// bindToDevice binds a token to the keys of a join request. It also removes any token of the replaced device, whose
// name becomes free.
func (t *tokenStore) bindToDevice(x tokenRecord, j *wire.EnrolmentRequest, now time.Time) error {
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(y tokenRecord) bool {
		return y.Agent != "" && y.Agent == x.ReplacedAgent && y.Agent != x.Agent
	})
	x.DeviceSignKey, x.DeviceTLSKey = j.DeviceKey[:], j.TLSKey[:]
	return t.replaceToken(all, x)
}

// markDeviceListed records that the device of a used token was added to the list.
func (t *tokenStore) markDeviceListed(x tokenRecord, j *wire.EnrolmentRequest, now time.Time) error {
	x.DeviceSignKey, x.DeviceTLSKey, x.DeviceListed = j.DeviceKey[:], j.TLSKey[:], true
	return t.replaceToken(t.unexpiredTokens(now), x)
}

// replaceToken replaces the token with the key of x and saves all tokens.
func (t *tokenStore) replaceToken(all []tokenRecord, x tokenRecord) error {
	for i := range all {
		if bytes.Equal(all[i].TokenPublicKey, x.TokenPublicKey) {
			all[i] = x
		}
	}
	return t.saveTokens(all)
}

// removeForAgent removes all tokens with which a device could rejoin.
func (t *tokenStore) removeForAgent(agent wire.AgentID, now time.Time) error {
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(x tokenRecord) bool {
		return x.Agent == agent ||
			x.ReplacedAgent == agent
	})
	if len(all) == len(t.storedTokens) {
		return nil
	}
	return t.saveTokens(all)
}

// removeOpenToken removes the token that any device may use.
func (t *tokenStore) removeOpenToken(now time.Time) error {
	return t.saveTokens(slices.DeleteFunc(t.unexpiredTokens(now), func(x tokenRecord) bool { return x.Agent == "" }))
}

// openJoinUntil returns the time until which any device may join; zero if enrolment is closed.
func (t *tokenStore) openJoinUntil(now time.Time) time.Time {
	for _, x := range t.storedTokens {
		if x.Agent == "" && now.Before(x.ExpiresAt) {
			return x.ExpiresAt
		}
	}
	return time.Time{}
}
