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

// tokenRecord is what the coordinator keeps of one. Its times are whole seconds.
type tokenRecord struct {
	Agent          wire.AgentID `json:"agent"`              // empty = any device that is not in the list, and no end but time
	ReplacedAgent  wire.AgentID `json:"replaces,omitempty"` // the device in whose place it comes; may be Agent itself
	TokenPublicKey []byte       `json:"key"`                // the public part of the token's key
	IssuedAt       time.Time    `json:"made"`
	ExpiresAt      time.Time    `json:"expires"`
	DeviceSignKey  []byte       `json:"device,omitempty"` // the keys that have burnt it
	DeviceTLSKey   []byte       `json:"tls,omitempty"`
	DeviceListed   bool         `json:"done,omitempty"` // the device was in the list: the token does not edit it again
}

func (t *tokenRecord) isUsed() bool { return len(t.DeviceSignKey) > 0 }

// isUsedBy reports whether a join comes from the device that has burnt the token.
func (t *tokenRecord) isUsedBy(j *wire.EnrolmentRequest) bool {
	return bytes.Equal(t.DeviceSignKey, j.DeviceKey[:]) && bytes.Equal(t.DeviceTLSKey, j.TLSKey[:])
}

// tokenStore are all tokens that have not expired, one a device at most. Each change is on the disk before it counts.
type tokenStore struct {
	disk         store.Disk
	dir          string // the state folder
	storedTokens []tokenRecord
}

// openTokens reads the tokens. A damaged file is an error: a token in it may have been burnt.
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
		return nil, fmt.Errorf("the tokens of devices that are to join: %w; remove the file, and make new tokens", err)
	}
	return t, nil
}

// saveTokens puts other tokens in the place of all, on the disk first.
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

// unexpiredTokens returns the tokens that have not expired.
func (t *tokenStore) unexpiredTokens(now time.Time) []tokenRecord {
	return slices.DeleteFunc(slices.Clone(t.storedTokens), func(x tokenRecord) bool { return !now.Before(x.ExpiresAt) })
}

// issue makes a token, in the place of an earlier one for the same device.
func (t *tokenStore) issue(agent, replaces wire.AgentID, pin wire.RootPin, now time.Time,
	ttl time.Duration) (wire.EnrolmentToken,
	error) {
	is := wire.EnrolmentToken{Agent: agent, Pin: pin}
	rand.Read(is.Secret[:])
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(x tokenRecord) bool { return x.Agent == agent })
	if len(all) >= maxTokens {
		return wire.EnrolmentToken{},
			fmt.Errorf("%d tokens have not expired: wait, or revoke devices that will not join",
				maxTokens)
	}
	public := is.SigningKey().Public().(ed25519.PublicKey)
	made := now.UTC().Truncate(time.Second)
	all = append(all, tokenRecord{Agent: agent, ReplacedAgent: replaces, TokenPublicKey: public, IssuedAt: made,
		ExpiresAt: made.Add(ttl)})
	return is, t.saveTokens(all)
}

// findForJoin returns the token whose key has signed a join; nil if there is none.
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

// bindToDevice binds a token to the keys of a join. A token of the device in whose place it comes goes: that name is
// free then.
func (t *tokenStore) bindToDevice(x tokenRecord, j *wire.EnrolmentRequest, now time.Time) error {
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(y tokenRecord) bool {
		return y.Agent != "" && y.Agent == x.ReplacedAgent && y.Agent != x.Agent
	})
	x.DeviceSignKey, x.DeviceTLSKey = j.DeviceKey[:], j.TLSKey[:]
	return t.replaceToken(all, x)
}

// markDeviceListed notes that the device of a burnt token is in the list.
func (t *tokenStore) markDeviceListed(x tokenRecord, j *wire.EnrolmentRequest, now time.Time) error {
	x.DeviceSignKey, x.DeviceTLSKey, x.DeviceListed = j.DeviceKey[:], j.TLSKey[:], true
	return t.replaceToken(t.unexpiredTokens(now), x)
}

// replaceToken changes one of all.
func (t *tokenStore) replaceToken(all []tokenRecord, x tokenRecord) error {
	for i := range all {
		if bytes.Equal(all[i].TokenPublicKey, x.TokenPublicKey) {
			all[i] = x
		}
	}
	return t.saveTokens(all)
}

// removeForAgent removes the tokens that a device could come back with.
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

// removeOpenToken removes the token of any device.
func (t *tokenStore) removeOpenToken(now time.Time) error {
	return t.saveTokens(slices.DeleteFunc(t.unexpiredTokens(now), func(x tokenRecord) bool { return x.Agent == "" }))
}

// openJoinUntil returns until when any device may join; the zero time if none may.
func (t *tokenStore) openJoinUntil(now time.Time) time.Time {
	for _, x := range t.storedTokens {
		if x.Agent == "" && now.Before(x.ExpiresAt) {
			return x.ExpiresAt
		}
	}
	return time.Time{}
}
