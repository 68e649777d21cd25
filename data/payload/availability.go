package payload

import (
	"slices"
	"strings"
)

// availabilityDecoder decodes messages about the availability of a device, such as online and offline, or JSON with
// this text in the member state or status. Any other text means that the device is available.
type availabilityDecoder struct{}

// NewAvailabilityDecoder returns a decoder of messages about the availability of a device. Its readings have no value.
func NewAvailabilityDecoder() Decoder { return availabilityDecoder{} }

// offlineTexts contains the texts, in lower case, that mean that a device is not available.
var offlineTexts = []string{"offline", "unavailable", "disconnected", "down", "false", "0"}

// Decode implements Decoder.
func (availabilityDecoder) Decode(m Message) (Content, error) {
	v := plainValue(trimPayload(m.Payload))
	if object, isObject := v.(map[string]any); isObject {
		v = object["state"]
		if v == nil {
			v = object["status"]
		}
	}
	state := Online
	if slices.Contains(offlineTexts, strings.ToLower(ValueText(v))) {
		state = Offline
	}
	return Content{readings: []Reading{{Availability: state}}}, nil
}
