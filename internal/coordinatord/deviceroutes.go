package coordinatord

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"rsc.io/qr"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// deviceHistoryInterval is the time between two writes of the device history. Changes after the last write are lost if
// the process is killed.
const deviceHistoryInterval = 10 * time.Minute

// devicesRoute returns the route that lists the devices.
func (f *Federation) devicesRoute() api.Route {
	return api.GetRoute("/v1/devices", "List the enrolled devices.", func(r *http.Request) (*coordinatorstatus.Devices,
		error) {
		enrolled, err := f.settings().AgentIDs()
		if err != nil {
			return nil, err
		}
		var states []string
		if s := r.FormValue("state"); s != "" {
			states = strings.Split(s, ",")
		}
		l, err := f.statusTracker.ListDevices(enrolled, states, r.FormValue("sort"))
		if err != nil {
			return nil, api.BadRequest("%v", err)
		}
		return l, nil
	}, api.QueryParameter{Name: "state", About: "return only devices in these states: " +
		strings.Join(coordinatorstatus.DeviceStates, ", ")},
		api.QueryParameter{Name: "sort", About: "column by which to " +
			"sort: " + strings.Join(coordinatorstatus.DeviceSortKeys(), ", ") +
			"; put - before the name to reverse the order"})
}

// BootCounterResetAnswer is the response to a reset of a device's boot counter.
type BootCounterResetAnswer struct {
	Agent string `json:"agent"`
}

// bootCounterResetRoute returns the route that resets a device's boot counter.
func (f *Federation) bootCounterResetRoute() api.Route {
	return api.PostRoute("/v1/devices/{id}/reset",
		"Accept a device again after it lost its state folder.",
		func(r *http.Request, _ api.EmptyBody) (BootCounterResetAnswer, error) {
			id := wire.AgentID(r.PathValue("id"))
			ctx, cancel := context.WithTimeout(r.Context(), daemon.CommandTimeout)
			defer cancel()
			c, err := f.awaitCoordinator(ctx)
			if err == nil {
				err = c.ResetBootCounter(ctx, id)
			}
			return BootCounterResetAnswer{string(id)}, unlistedAsNotFound(err)
		})
}

// Requests and responses of the device routes. Keys and bytes are in base64.
type (
	// TokenRequest requests a new enrolment token.
	TokenRequest struct {
		// device that may join with the token; empty for any device that is not in the list
		Device         string `json:"device,omitempty"`
		ReplacedDevice string `json:"replaces,omitempty"` // device to be replaced, which may be the same device
		TTL            string `json:"ttl"`                // validity, such as 24h
	}
	// IssuedToken is a new token. The coordinator shows it only once.
	IssuedToken struct {
		Token       string    `json:"token"`
		JoinURL     string    `json:"url"` // URL at which the device joins
		Expires     time.Time `json:"expires"`
		JoinCommand string    `json:"command"` // command to run on the device
		// QRCode contains JoinCommand as a QR code: one text per row, with "1" for a dark module and "0" for a light
		// one.
		QRCode []string `json:"qr"`
	}
	// EnrolmentState describes how devices can join.
	EnrolmentState struct {
		IsEnabled        bool              `json:"enabled"`
		OpenUntil        *time.Time        `json:"open_until,omitempty"` // time until which any device may join
		Tokens           []enrol.TokenInfo `json:"tokens"`               // tokens that have not expired
		CoordinatorKey   string            `json:"coordinator_key"`      // public key in use, in base64
		RootVersion      uint32            `json:"root,omitempty"`       // version of the root document in use
		EnrolledDevices  int               `json:"devices"`
		CertificateHours float64           `json:"certificate_hours,omitempty"` // validity of devices' certificates
	}
	// OpenTokenRevoked reports that the open token, with which any device could join, was revoked. Each device now
	// needs a token of its own.
	OpenTokenRevoked struct {
		IsOpenTokenRevoked bool `json:"closed"`
	}
	// AdmitRequest adds a device to the list with a key that the operator already has.
	AdmitRequest struct {
		SigningPublicKey []byte `json:"key"`           // signing key of the device
		TLSPublicKey     []byte `json:"tls,omitempty"` // key of the client certificate, if one is requested
	}
	// AdmitResponse is the response to an AdmitRequest. It contains the encoded admission if a certificate was
	// requested.
	AdmitResponse struct {
		Agent            string `json:"agent"`
		EncodedAdmission []byte `json:"admission,omitempty"`
	}
	// DeviceRevoked names a device that was removed from the list.
	DeviceRevoked struct {
		Agent string `json:"agent"`
	}
)

// enrolmentRoutes returns the routes that change the list of agents.
func (f *Federation) enrolmentRoutes() []api.Route {
	return []api.Route{
		f.rootDocumentInstallRoute(),
		api.PostRoute("/v1/tokens", "Create a token with which a device can join.",
			func(r *http.Request, w TokenRequest) (IssuedToken, error) {
				return f.enrolment.issueToken(r.Context(), w)
			}),
		api.PostRoute("/v1/tokens/close", "Revoke the token with which any device can join.",
			func(*http.Request, api.EmptyBody) (OpenTokenRevoked, error) {
				if f.enrolment.enroller == nil {
					return OpenTokenRevoked{}, errEnrolmentDisabled
				}
				return OpenTokenRevoked{true}, f.enrolment.enroller.RevokeOpenToken()
			}),
		api.PostRoute("/v1/devices/{id}/admit", "Add a device with a known key to the list.",
			func(r *http.Request, a AdmitRequest) (AdmitResponse, error) {
				ctx, cancel := context.WithTimeout(r.Context(), daemon.CommandTimeout)
				defer cancel()
				return f.enrolment.admitDevice(ctx, wire.AgentID(r.PathValue("id")), a)
			}),
		api.PostRoute("/v1/devices/{id}/revoke", "Remove a device from the list and ignore its messages.",
			func(r *http.Request, _ api.EmptyBody) (DeviceRevoked, error) {
				id := wire.AgentID(r.PathValue("id"))
				ctx, cancel := context.WithTimeout(r.Context(), daemon.CommandTimeout)
				defer cancel()
				return DeviceRevoked{string(id)}, unlistedAsNotFound(f.enrolment.revokeDevice(ctx, id))
			}),
	}
}

// enrolmentRoute returns the route that shows how devices can join. It returns no secret of a token.
func (f *Federation) enrolmentRoute() api.Route {
	return api.GetRoute("/v1/enrolment", "Return the tokens with which devices can join, without their secrets.",
		func(*http.Request) (EnrolmentState, error) {
			s := f.settings()
			state := EnrolmentState{Tokens: []enrol.TokenInfo{}}
			key, err := s.CoordinatorPrivateKey()
			if err != nil {
				return state, err
			}
			state.CoordinatorKey = keys.FormatPublic(keys.Public(key))
			if state.EnrolledDevices, err = s.CountAgents(); err != nil {
				return state, err
			}
			if e := f.enrolment.enroller; e != nil {
				state.IsEnabled, state.Tokens = true, e.UnexpiredTokens()
				root := e.RootDocument()
				state.RootVersion, state.CertificateHours = uint32(root.Version), s.Enrolment.CertificateLife.Hours()
				if until := e.OpenJoinUntil(); !until.IsZero() {
					state.OpenUntil = &until
				}
			}
			return state, nil
		})
}

// qrRows returns a QR code of a text: one text per row, with "1" for a dark module and "0" for a light one.
func qrRows(text string) ([]string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return nil, err
	}
	rows := make([]string, code.Size)
	for y := range rows {
		row := make([]byte, code.Size)
		for x := range row {
			if row[x] = '0'; code.Black(x, y) {
				row[x] = '1'
			}
		}
		rows[y] = string(row)
	}
	return rows, nil
}

// unlistedAgentError returns the error for a device that is not in the list.
func unlistedAgentError(id wire.AgentID) error {
	return fmt.Errorf("agent %s is %w", id, coordinator.ErrUnlisted)
}

// unlistedAsNotFound converts coordinator.ErrUnlisted to a 404 API error. It returns other errors unchanged.
func unlistedAsNotFound(err error) error {
	if errors.Is(err, coordinator.ErrUnlisted) {
		return api.NotFound("%v", err)
	}
	return err
}

// errEnrolmentDisabled reports that enrolment is disabled.
var errEnrolmentDisabled = api.Conflict("devices cannot join because enrol.listen is not set; `coordinator init` " +
	"with a broker over TLS creates the section enrol")

func (e *enrolmentService) issueToken(ctx context.Context, w TokenRequest) (made IssuedToken, err error) {
	ttl, err := time.ParseDuration(w.TTL)
	switch {
	case e.enroller == nil:
		return made, errEnrolmentDisabled
	case err != nil || ttl < time.Minute || ttl > 366*24*time.Hour:
		return made, api.BadRequest("the lifetime of a token must be between 1m and 8784h, such as 24h, but is %q",
			w.TTL)
	}
	id, replaces := wire.AgentID(w.Device), wire.AgentID(w.ReplacedDevice)
	path := e.federation.settings().Identity.AgentListFile
	if is, err := agentlist.LookupAgentAndKey(path, id, nil); err != nil {
		return made, err
	} else if is.AgentKey != nil && id != replaces {
		return made, api.Conflict("%s is already in the list of agents; to give it a new key, or to replace the "+
			"device, run: coordinator devices rotate %[1]s", id)
	}
	if replaces != "" {
		if is, err := agentlist.LookupAgentAndKey(path, replaces, nil); err != nil {
			return made, err
		} else if is.AgentKey == nil {
			return made, unlistedAsNotFound(unlistedAgentError(replaces))
		}
	}
	token, err := e.enroller.IssueToken(id, replaces, ttl)
	if err != nil {
		return made, api.BadRequest("%v", err)
	}
	if err := e.federation.publishStateToReplicas(ctx); err != nil {
		return made, err
	}
	made = IssuedToken{Token: token.String(), JoinURL: e.federation.settings().Enrolment.JoinURL,
		Expires: time.Now().Add(ttl).Truncate(time.Second)}
	made.JoinCommand = "agentd join " + made.JoinURL + " --token " + made.Token
	if id == "" {
		made.JoinCommand += " --id ID"
	}
	made.QRCode, err = qrRows(made.JoinCommand)
	return made, err
}

// admitDevice adds a device to the list of agents and, if requested, issues a certificate.
func (e *enrolmentService) admitDevice(ctx context.Context, id wire.AgentID, a AdmitRequest) (AdmitResponse, error) {
	done := AdmitResponse{Agent: string(id)}
	key, err := keys.ParsePublic(base64.StdEncoding.EncodeToString(a.SigningPublicKey))
	if err == nil {
		err = id.ValidateNonCoordinator()
	}
	if err != nil {
		return done, api.BadRequest("%v", err)
	}
	if len(a.TLSPublicKey) > 0 {
		if e.enroller == nil {
			return done, errEnrolmentDisabled
		}
		if len(a.TLSPublicKey) != len(wire.TLSPublicKey{}) {
			return done, api.BadRequest("the public key for the certificate has %d bytes, want %d", len(a.TLSPublicKey),
				len(wire.TLSPublicKey{}))
		}
		made, err := e.enroller.AdmitDevice(ctx, id, wire.SigningPublicKey(key), wire.TLSPublicKey(a.TLSPublicKey),
			time.Now())
		done.EncodedAdmission = made.Bytes()
		return done, enrolErrorAsConflict(err)
	}
	if e.enroller != nil {
		if err := e.enroller.CheckDeviceName(id); err != nil {
			return done, api.BadRequest("%v", err)
		}
	}
	return done, enrolErrorAsConflict(e.Admit(ctx, id, wire.SigningPublicKey(key), ""))
}

// enrolErrorAsConflict converts errors about a device that cannot be admitted to 409 API errors. It returns other
// errors unchanged.
func enrolErrorAsConflict(err error) error {
	if errors.Is(err, enrol.ErrListed) || errors.Is(err, enrol.ErrOther) {
		return api.Conflict("%v", err)
	}
	return err
}

// persistDeviceHistory loads the device history and saves it periodically until end is called. The caller calls end
// after the coordinator's last event.
func (f *Federation) persistDeviceHistory(ctx context.Context) (end func()) {
	f.loadDeviceHistory()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() { f.saveDeviceHistoryPeriodically(ctx) })
	return func() {
		cancel()
		keeping.Wait()
	}
}

// loadDeviceHistory loads the device history of earlier processes. If the file is damaged, the history starts empty.
func (f *Federation) loadDeviceHistory() {
	body, err := store.LocalDisk.LoadStateFile(f.stateDir, runs.DeviceHistory)
	if errors.Is(err, store.ErrNoRecord) {
		return
	}
	if err == nil {
		enrolled, listed := f.settings().AgentIDs()
		if err = listed; err == nil {
			err = f.statusTracker.RestoreDeviceHistory(body, enrolled)
		}
	}
	if err != nil {
		f.o.Logger.Warn("cannot read the history of devices", "err", err,
			"consequence", runs.DeviceHistory.LossConsequence)
	}
}

// saveDeviceHistoryPeriodically saves the device history at intervals, and once more when ctx ends.
func (f *Federation) saveDeviceHistoryPeriodically(ctx context.Context) {
	tick := time.NewTicker(deviceHistoryInterval)
	defer tick.Stop()
	for ending := false; !ending; {
		select {
		case <-ctx.Done():
			ending = true
		case <-tick.C:
		}
		body, changed := f.statusTracker.EncodeDeviceHistoryIfChanged()
		if !changed {
			continue
		}
		if err := store.LocalDisk.SaveStateFile(f.stateDir, runs.DeviceHistory, body); err != nil {
			f.statusTracker.MarkDeviceHistoryUnsaved()
			f.o.Logger.Warn("cannot save the history of devices", "err", fmt.Errorf("state folder: %w", err))
		}
	}
}
