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

// token is what the coordinator keeps of one. Its times are whole seconds.
type token struct {
	Agent         wire.AgentID `json:"agent"`              // empty = any device that is not in the list, and no end but time
	ReplacedAgent wire.AgentID `json:"replaces,omitempty"` // the device in whose place it comes; may be Agent itself
	Key           []byte       `json:"key"`                // the public part of the token's key
	IssuedAt      time.Time    `json:"made"`
	Expires       time.Time    `json:"expires"`
	DeviceSignKey []byte       `json:"device,omitempty"` // the keys that have burnt it
	DeviceTLSKey  []byte       `json:"tls,omitempty"`
	DeviceListed  bool         `json:"done,omitempty"` // the device was in the list: the token does not edit it again
}

func (t *token) isUsed() bool { return len(t.DeviceSignKey) > 0 }

// isUsedBy reports whether a join comes from the device that has burnt the token.
func (t *token) isUsedBy(j *wire.EnrolmentRequest) bool {
	return bytes.Equal(t.DeviceSignKey, j.DeviceKey[:]) && bytes.Equal(t.DeviceTLSKey, j.TLSKey[:])
}

// tokenStore are all tokens that have not expired, one a device at most. Each change is on the disk before it counts.
type tokenStore struct {
	disk      store.Disk
	dir       string // the state folder
	unexpired []token
}

// openTokens reads the tokens. A damaged file is an error: a token in it may have been burnt.
func openTokens(disk store.Disk, dir string) (*tokenStore, error) {
	t := &tokenStore{disk: disk, dir: dir}
	body, err := disk.LoadStateFile(dir, runs.Tokens)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return t, nil
	case err == nil:
		err = json.Unmarshal(body, &t.unexpired)
	}
	if err != nil {
		return nil, fmt.Errorf("the tokens of devices that are to join: %w; remove the file, and make new tokens", err)
	}
	return t, nil
}

// saveTokens puts other tokens in the place of all, on the disk first.
func (t *tokenStore) saveTokens(all []token) error {
	body, err := json.Marshal(all)
	if err == nil {
		err = t.disk.SaveStateFile(t.dir, runs.Tokens, body)
	}
	if err == nil {
		t.unexpired = all
	}
	return err
}

// unexpiredTokens returns the tokens that have not expired.
func (t *tokenStore) unexpiredTokens(now time.Time) []token {
	return slices.DeleteFunc(slices.Clone(t.unexpired), func(x token) bool { return !now.Before(x.Expires) })
}

// issue makes a token, in the place of an earlier one for the same device.
func (t *tokenStore) issue(agent, replaces wire.AgentID, pin wire.RootPin, now time.Time,
	ttl time.Duration) (wire.EnrolmentToken,
	error) {
	is := wire.EnrolmentToken{Agent: agent, Pin: pin}
	rand.Read(is.Secret[:])
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(x token) bool { return x.Agent == agent })
	if len(all) >= maxTokens {
		return wire.EnrolmentToken{},
			fmt.Errorf("%d tokens have not expired: wait, or revoke devices that will not join",
				maxTokens)
	}
	public := is.SigningKey().Public().(ed25519.PublicKey)
	made := now.UTC().Truncate(time.Second)
	all = append(all, token{Agent: agent, ReplacedAgent: replaces, Key: public, IssuedAt: made, Expires: made.Add(ttl)})
	return is, t.saveTokens(all)
}

// findForJoin returns the token whose key has signed a join; nil if there is none.
func (t *tokenStore) findForJoin(j *wire.EnrolmentRequest, binding []byte, now time.Time) *token {
	text := j.SignedText(binding)
	for _, agent := range []wire.AgentID{j.Agent, ""} {
		i := slices.IndexFunc(t.unexpired, func(x token) bool { return x.Agent == agent })
		if i >= 0 && now.Before(t.unexpired[i].Expires) && ed25519.Verify(t.unexpired[i].Key, text,
			j.TokenSignature[:]) {
			return &t.unexpired[i]
		}
	}
	return nil
}

// bindToDevice binds a token to the keys of a join. A token of the device in whose place it comes goes: that name is
// free then.
func (t *tokenStore) bindToDevice(x token, j *wire.EnrolmentRequest, now time.Time) error {
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(y token) bool {
		return y.Agent != "" && y.Agent == x.ReplacedAgent && y.Agent != x.Agent
	})
	x.DeviceSignKey, x.DeviceTLSKey = j.DeviceKey[:], j.TLSKey[:]
	return t.replaceToken(all, x)
}

// markDeviceListed notes that the device of a burnt token is in the list.
func (t *tokenStore) markDeviceListed(x token, j *wire.EnrolmentRequest, now time.Time) error {
	x.DeviceSignKey, x.DeviceTLSKey, x.DeviceListed = j.DeviceKey[:], j.TLSKey[:], true
	return t.replaceToken(t.unexpiredTokens(now), x)
}

// replaceToken changes one of all.
func (t *tokenStore) replaceToken(all []token, x token) error {
	for i := range all {
		if bytes.Equal(all[i].Key, x.Key) {
			all[i] = x
		}
	}
	return t.saveTokens(all)
}

// removeForAgent removes the tokens that a device could come back with.
func (t *tokenStore) removeForAgent(agent wire.AgentID, now time.Time) error {
	all := slices.DeleteFunc(t.unexpiredTokens(now), func(x token) bool {
		return x.Agent == agent ||
			x.ReplacedAgent == agent
	})
	if len(all) == len(t.unexpired) {
		return nil
	}
	return t.saveTokens(all)
}

// removeOpenToken removes the token of any device.
func (t *tokenStore) removeOpenToken(now time.Time) error {
	return t.saveTokens(slices.DeleteFunc(t.unexpiredTokens(now), func(x token) bool { return x.Agent == "" }))
}

// openUntil returns until when any device may join; the zero time if none may.
func (t *tokenStore) openUntil(now time.Time) time.Time {
	for _, x := range t.unexpired {
		if x.Agent == "" && now.Before(x.Expires) {
			return x.Expires
		}
	}
	return time.Time{}
}
