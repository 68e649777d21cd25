package payload

import "fmt"

// jsonDecoder decodes JSON. If the first byte shows that a payload is CBOR, it decodes the payload as CBOR, because
// some systems publish either format under the same topic.
type jsonDecoder struct{ clock TimeField }

// Decode implements Decoder.
func (d jsonDecoder) Decode(m Message) (Content, error) {
	if len(trimPayload(m.Payload)) == 0 {
		return Content{}, ErrEmpty
	}
	if beginsLikeCBOR(m.Payload) {
		return cborDecoder(d).Decode(m)
	}
	tree, err := ParseJSON(m.Payload)
	if err != nil {
		return Content{}, fmt.Errorf("%w%s", err, adviceOf(m.Payload, FormatJSON))
	}
	return TreeContent(tree, d.clock)
}
